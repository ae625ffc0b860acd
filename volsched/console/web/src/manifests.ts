/** What somebody pastes: YAML documents or JSON, one object, several, or a List, as kubectl prints them. */

export async function manifests(text: string): Promise<unknown[]> {
  // Loaded on use: nobody else on the page reads YAML.
  const { JSON_SCHEMA, loadAll } = await import("js-yaml");
  let documents: unknown[];
  try {
    documents = loadAll(text, null, { schema: JSON_SCHEMA });
  } catch (error) {
    throw new Error(`this is neither YAML nor JSON: ${(error as Error).message.split("\n")[0]}`);
  }
  const found = documents.flatMap(objects);
  if (found.length === 0) throw new Error("there is no manifest here; kubectl get -o yaml prints some");
  return found;
}

function objects(document: unknown): unknown[] {
  if (document === null || document === undefined) return [];
  if (Array.isArray(document)) return document.flatMap(objects);
  const { kind, items } = document as { kind?: unknown; items?: unknown };
  return kind === "List" && Array.isArray(items) ? items : [document];
}
