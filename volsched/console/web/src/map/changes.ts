/** What differs between two pictures: volumes one by one, else the counts of their nodes. */
import type { VolumeMap } from "../api";

export interface VolumeChange {
  name: string;
  node: string | null;
  before: string;
  after: string;
}

export function changesBetween(before: VolumeMap, after: VolumeMap): VolumeChange[] {
  if (before.volumes && after.volumes) {
    const old = new Map(before.volumes.map((it) => [it.name, it]));
    const young = new Map(after.volumes.map((it) => [it.name, it]));
    return [...new Set([...old.keys(), ...young.keys()])].sort().flatMap((name) => {
      const [was, is] = [old.get(name), young.get(name)];
      const change = { name, node: is?.node ?? was?.node ?? null, before: told(was), after: told(is) };
      return change.before === change.after ? [] : [change];
    });
  }
  const old = new Map((before.nodes ?? []).map((it) => [it.name, it]));
  const young = new Map((after.nodes ?? []).map((it) => [it.name, it]));
  return [...new Set([...old.keys(), ...young.keys()])].sort().flatMap((name) => {
    const change = { name, node: name, before: counted(old.get(name)?.states), after: counted(young.get(name)?.states) };
    return change.before === change.after ? [] : [change];
  });
}

function told(volume: { state: string; claim: string | null } | undefined): string {
  if (!volume) return "not there";
  return volume.claim ? `${volume.state}, ${volume.claim}` : volume.state;
}

function counted(states: VolumeMap["groups"][number]["states"] | undefined): string {
  if (!states) return "not there";
  return Object.entries(states).sort().map(([state, it]) => `${it!.volumes} ${state}`).join(", ") || "no volumes";
}
