/** The frame of every page: navigation, sign-in, the page itself, and the time below all of it. */
import type { ComponentType } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { refusal, session, signIn, signOut, token, unauthorized } from "./api";
import { forbidden, start, trouble } from "./live";
import { MapPage } from "./map/MapPage";
import { AuditPage } from "./pages/AuditPage";
import { DrillsPage } from "./pages/DrillsPage";
import { NowPage } from "./pages/NowPage";
import { ObjectPage } from "./pages/ObjectPage";
import { WhatIfPage } from "./pages/WhatIfPage";
import { amend, link, namespace, place } from "./route";
import { TimeBar } from "./TimeBar";

const PAGES: Record<string, ComponentType> = {
  map: MapPage, now: NowPage, whatif: WhatIfPage, audit: AuditPage, drills: DrillsPage,
  pod: ObjectPage, claim: ObjectPage, volume: ObjectPage, node: ObjectPage, binding: ObjectPage,
};
const NAVIGATION: [string, string][] = [["map", "Map"], ["now", "Now"], ["whatif", "What if"], ["audit", "Audit"], ["drills", "Drills"]];

export function App() {
  useEffect(start, []);
  const { page } = place.value;
  const Page = PAGES[page];
  const known = NAVIGATION.some(([name]) => name === page) ? page : "";
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>To the page</a>
      <header class="top">
        <a class="brand" href={link("map")}><img src="./icon.svg" alt="" width="22" height="22" /> volsched</a>
        <nav aria-label="Pages">
          {NAVIGATION.map(([name, title]) => (
            <a href={link(name)} aria-current={known === name ? "page" : undefined}>{title}</a>
          ))}
        </nav>
        <Finder />
        {token.value && <button type="button" onClick={signOut}>Sign out</button>}
      </header>
      <div class="notices" role="status">{trouble.value && !unauthorized.value && !forbidden.value && <p class="note wrong">{trouble.value}</p>}</div>
      <main id="main" tabIndex={-1}>
        {unauthorized.value ? <SignIn />
          : forbidden.value ? <ChooseNamespace />
          : Page ? <Guarded key={[session.value, page, ...place.value.rest].join("/")} of={Page} />
          : <><h1>Not found</h1><p class="note">There is no page “{page}”. <a href={link("map")}>To the map</a></p></>}
      </main>
      {!unauthorized.value && !forbidden.value && <TimeBar />}
    </>
  );
}

/** A page that cannot draw what it was told says so; the time and the other pages are still there. */
function Guarded({ of: Page }: { of: ComponentType }) {
  const [error, reset] = useErrorBoundary();
  const here = location.hash;
  useEffect(() => {
    if (error) reset();
  }, [here]);
  if (!error) return <Page />;
  return <p class="note wrong" role="alert">This page cannot be drawn: {String((error as Error).message)}. <a href={link("map")}>To the map</a></p>;
}

function Finder() {
  return (
    <form class="finder" role="search" aria-label="Objects" onSubmit={(event) => {
      event.preventDefault();
      const field = event.currentTarget.elements.namedItem("object") as HTMLInputElement;
      const [kind, ...name] = field.value.trim().split(/[\s/]+/);
      const pages: Record<string, string> = { pv: "volume", volume: "volume", pvc: "claim", claim: "claim", pod: "pod", node: "node", binding: "binding" };
      const page = pages[kind ?? ""];
      if (page && name.length) location.hash = link(page, name);
      else location.hash = link("map", [], { text: field.value.trim(), view: "list" });
      field.value = "";
    }}>
      <input name="object" type="search" placeholder="pod shop/db-0, pv disk-7, or a word" aria-label="Find an object" />
    </form>
  );
}

function SignIn() {
  return (
    <form class="card narrow" onSubmit={(event) => {
      event.preventDefault();
      signIn((event.currentTarget.elements.namedItem("token") as HTMLInputElement).value);
    }}>
      <h1>Sign in</h1>
      {refusal.value && <p class="note wrong" role="alert">The token was refused: {refusal.value}</p>}
      <p>This server wants to know who you are. Ask its operator for a token: <code>volsched token create NAME --role auditor</code></p>
      <label>Token <input name="token" type="password" autocomplete="off" required /></label>
      <p class="quiet">It is kept until this tab is closed, and is sent to this server only.</p>
      <button type="submit" class="primary">Sign in</button>
    </form>
  );
}

function ChooseNamespace() {
  return (
    <form class="card narrow" onSubmit={(event) => {
      event.preventDefault();
      amend({ ns: (event.currentTarget.elements.namedItem("ns") as HTMLInputElement).value.trim() }, true);
    }}>
      <h1>Choose a namespace</h1>
      <p>{namespace.value ? <>Namespace {namespace.value} is not yours to see.</> : "Your role does not reach the whole cluster."} Name a namespace that is yours.</p>
      <label>Namespace <input name="ns" required autocomplete="off" /></label>
      <button type="submit" class="primary">Show it</button>
    </form>
  );
}
