/**
 * Stories of the console, played in a real browser, one after the other in one process:
 *
 *     node stories.mjs '{"web": ".../volsched/console/web", "url": "https://127.0.0.1:1234", "auditor": TOKEN, "viewer": TOKEN}'
 *
 * prints a line of JSON for each: its name, and what went wrong. Waits are for what a reader would see.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const given = JSON.parse(process.argv[2]);
const require = createRequire(`${given.web}/package.json`);
const { default: packed } = await import(require.resolve("@sparticuz/chromium"));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const HANG_MILLISECONDS = 240_000;

const stories = {
  async "a stolen volume is found by the time slider, and the binding's lanes tell why"(page) {
    await open(page, "map");
    const drawn = page.locator(".map-page");
    await drawn.waitFor();
    await page.getByRole("button", { name: "Previous failed binding" }).click();
    await page.waitForURL(/at=\d+/);
    await page.getByText("You look at the past").waitFor();
    const failed = new URL(page.url()).hash.match(/at=(\d+)/)[1];
    await page.locator(`.map-page[data-position="${failed}"]`).waitFor();
    await page.getByRole("button", { name: "List" }).click();
    const row = page.locator("tr", { hasText: "elsewhere/thief" });
    await row.waitFor();
    const volume = await row.getByRole("link").first().textContent();
    await row.getByRole("link").first().click();
    await page.getByRole("heading", { name: `volume ${volume}` }).waitFor();
    await page.getByLabel("Bindings").first().getByRole("link", { name: /^story-/ }).first().click();
    const lanes = page.getByRole("region", { name: "Lanes of the binding" });
    await lanes.waitFor();
    await page.getByRole("button", { name: /Go live/ }).click();
    await lanes.getByText("rolled-back", { exact: true }).waitFor();
    await lanes.getByText("voided", { exact: true }).waitFor();
    const between = await page.getByTestId("foreign").textContent();
    assert.match(between, /cluster changed volume\/.* in between: spec\.claimRef=elsewhere\/thief/);
  },

  async "the remedy of a pod that waits is read on its page"(page) {
    await open(page, "map");
    await page.getByRole("link", { name: "shop/archive-0" }).click();
    const remedies = page.getByTestId("remedies");
    await remedies.waitFor();
    assert.match(await remedies.textContent(), /ask for 6Gi instead of 40Gi/);
  },

  async "manifests are pasted as YAML and tried, and what is none is refused in a line"(page) {
    await open(page, "whatif");
    await page.getByRole("combobox").first().selectOption("add");
    await page.getByRole("textbox", { name: "Manifests" }).fill("a: [");
    await page.getByRole("button", { name: "Try it" }).click();
    await page.getByText("this is neither YAML nor JSON").waitFor();
    await page.getByRole("textbox", { name: "Manifests" }).fill("apiVersion: v1\nkind: Pod\nmetadata: {name: tried, namespace: shop}\nspec:\n  containers: [{name: main, image: app}]\n");
    await page.getByRole("button", { name: "Try it" }).click();
    await page.getByTestId("outcome").waitFor();
    assert.match(await page.getByTestId("outcome").textContent(), /shop\/tried/);
  },

  async "the loss of a zone is played: who is stranded, and by which volume"(page) {
    await open(page, "whatif");
    await page.locator(".map-frame").waitFor();
    await page.getByRole("combobox").first().selectOption("zone");
    await page.getByLabel("Which").fill("zone-b");
    await page.getByRole("button", { name: "Try it" }).click();
    const outcome = page.getByTestId("outcome");
    await outcome.waitFor();
    assert.match(await page.locator(".verdict").textContent(), /lose zone zone-b.*: .* are stranded/);
    const stranded = await page.getByTestId("stranded").textContent();
    assert.match(stranded, /shop\/db-\d/);
    assert.match(stranded, /is on n\d-(large|small): /);
    await page.getByRole("combobox").first().selectOption("drain");
    await page.getByLabel("Which").fill("node-0");
    await page.getByRole("button", { name: "Try it" }).click();
    await page.locator(".verdict", { hasText: "drain" }).waitFor();
    await page.goBack();
    await page.locator(".verdict", { hasText: "lose zone zone-b" }).waitFor();
    // Before anybody was placed, nobody would have been stranded.
    const field = page.getByLabel("Go to a time, an event or 2h ago");
    await field.fill("60");
    await field.press("Enter");
    await page.locator(".verdict", { hasText: "0 pods must leave" }).waitFor();
  },

  async "two moments are compared, and the differences are shown"(page) {
    await open(page, "map");
    await page.locator(".map-page").waitFor();
    const field = page.getByLabel("Go to a time, an event or 2h ago");
    await field.fill("60");
    await field.press("Enter");
    await page.locator('.map-page[data-position="60"]').waitFor();
    await page.getByRole("button", { name: "Compare from here" }).click();
    await page.getByRole("button", { name: /Go live/ }).click();
    await page.getByTestId("changes").getByText("shop/data-db-0").waitFor();
    // Going back moved nothing but what is drawn, nor does a range.
    const places = () => page.evaluate(() => [".map-frame", ".map-side", ".slider", ".live"].map((it) => JSON.stringify(document.querySelector(it).getBoundingClientRect())));
    const now = await places();
    await field.fill("60");
    await field.press("Enter");
    await page.locator('.map-page[data-position="60"]').waitFor();
    assert.deepEqual(await places(), now);
    await page.getByRole("button", { name: "Narrow" }).click();
    await page.getByRole("button", { name: "Whole log" }).waitFor();
    assert.deepEqual(await places(), now);
  },

  async "a range is picked, the slider narrows to it and to one object, and failures alone are shown"(page) {
    await open(page, "map");
    await page.locator(".map-page").waitFor();
    const ends = () => page.getByTestId("range").locator("span").allTextContents();
    const whole = await ends();
    const field = page.getByLabel("Go to a time, an event or 2h ago");
    await field.fill("100..160");
    await field.press("Enter");
    await page.waitForURL(/from=100&to=160/);
    await page.waitForFunction((before) => document.querySelector("[data-testid=range]").textContent !== before, whole.join(""));
    await page.getByLabel("Moment of the log").press("Home");
    await page.waitForURL(/at=100/);
    await page.getByRole("button", { name: "Whole log" }).click();
    // Its end grows: whoever looks is recorded.
    await page.waitForFunction((first) => document.querySelector("[data-testid=range] span").textContent === first, whole[0]);
    const strip = await page.getByTestId("range").boundingBox();
    await page.mouse.move(strip.x + strip.width * 0.3, strip.y + 5);
    await page.mouse.down();
    await page.mouse.move(strip.x + strip.width * 0.6, strip.y + 5);
    await page.mouse.up();
    await page.waitForURL(/from=\d+&to=\d+/);
    await open(page, "volume/n7-large");
    await page.getByLabel("slider over these alone").check();
    await page.getByText("moments of n7-large alone").waitFor();
    await page.getByRole("button", { name: "One event back" }).click();
    await page.waitForURL(/at=\d+/);
    const moment = new URL(page.url()).hash.match(/at=(\d+)/)[1];
    await page.getByTestId("events").locator("li.here", { hasText: `#${moment}` }).waitFor();
    await open(page, "audit?failures=1");
    await page.getByTestId("events").locator("li.wrong").first().waitFor();
    assert.equal(await page.getByTestId("events").locator("li:not(.wrong):not(.idle)").count(), 0);
  },

  async "nodes are grouped by three labels, one inside the other"(page) {
    await open(page, "map");
    const levels = page.getByRole("form", { name: "Filters" }).getByLabel(/^(Group by|then)/);
    await levels.nth(1).selectOption({ label: "rack" });
    await levels.nth(2).selectOption({ label: "row" });
    await page.waitForURL(/by=.*zone.*rack.*row/);
    await open(page, "map?by=topology.kubernetes.io/zone,topology.example.com/rack,topology.example.com/row&in=zone-a/rack-0/row-0&view=list");
    await page.getByRole("link", { name: "n0-large" }).waitFor();
    await page.getByRole("link", { name: "n3-large" }).waitFor({ state: "detached" });
  },

  async "an operator releases a volume with a reason, and nobody else is offered it"(page) {
    await open(page, "volume/n7-large");
    await page.getByText("Whom it served").waitFor();
    assert.equal(await page.getByText("Release it").count(), 0);
    const operator = await signedIn(browser, given.operator);
    await open(operator, "volume/n7-large");
    await operator.getByText("Release it").click();
    await operator.getByRole("button", { name: "Release the volume" }).click();
    // The browser itself asks for the reason first.
    assert.equal(await operator.locator(".act [role=status]").count(), 0);
    await operator.getByLabel("Reason").fill("wiped, ticket 4711");
    await operator.getByRole("button", { name: "Release the volume" }).click();
    await operator.locator(".facts .state", { hasText: "Available" }).waitFor();
    // A context that is closed takes this one-process browser with it.
    await operator.goto("about:blank");
  },

  async "the report of a drill is opened, and its violations are read"(page) {
    await open(page, "drills");
    const report = (more) => Buffer.from(JSON.stringify({
      drill: "kill-all", about: "everybody is killed", passed: true, faults: { kill: 3 }, in_flight: 4, resumed: 3, rolled_back: 1, double_binds: 0, leaked: 0,
      lost_pods: 0, recovery_ms: { each: [1200] }, delays_ms: [], violations: [], invariants: [{ invariant: 1, holds: "no volume has two claims", violations: 0 }], ...more,
    }));
    await page.getByLabel("Files").setInputFiles([
      { name: "good.json", mimeType: "application/json", buffer: report({}) },
      { name: "bad.json", mimeType: "application/json", buffer: report({ drill: "<b>split</b>", violations: ["1: volume disk-7 has two claims"] }) },
      { name: "other.json", mimeType: "application/json", buffer: Buffer.from("[1]") },
    ]);
    await page.getByText("2 reports, 1 passed").waitFor();
    await page.getByTestId("violations").getByText("volume disk-7 has two claims").waitFor();
    await page.getByText("other.json: this is no report of a drill").waitFor();
  },

  async "the present is followed without being asked again, and a click on the map opens what is under it"(page) {
    // The past is not watched, and the present is, by Kubernetes' own watch.
    await open(page, "map?at=100");
    await page.getByText("You look at the past").waitFor();
    const watched = page.waitForRequest(/\/api\/v1\/persistentvolumes\?watch=true/);
    await open(page, "map");
    await watched;
    await page.getByText(/Live · up to date/).waitFor();
    const shown = Number(await page.locator(".map-page").getAttribute("data-position"));
    await page.evaluate(async (token) => {
      const node = { apiVersion: "v1", kind: "Node", metadata: { name: "node-new", labels: { "topology.kubernetes.io/zone": "zone-a" } } };
      const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
      await fetch("/api/v1/nodes", { method: "POST", headers, body: JSON.stringify(node) });
    }, given.operator);
    await page.waitForFunction((before) => Number(document.querySelector(".map-page")?.dataset.position) > before, shown);
    await page.locator(".map-canvas").click({ position: { x: 40, y: 68 } });
    await page.waitForURL(/#\/(volume|node)\//);
    await page.getByRole("heading", { level: 1 }).waitFor();
  },

  async "the map and the slider are used with the keyboard alone"(page) {
    await open(page, "map");
    await page.locator(".map-page").waitFor();
    const before = await page.getByLabel("Moment of the log").getAttribute("aria-valuetext");
    await page.getByLabel("Moment of the log").press("ArrowLeft");
    await page.waitForURL(/at=\d+/);
    assert.notEqual(await page.getByLabel("Moment of the log").getAttribute("aria-valuetext"), before);
    const map = page.getByRole("application");
    await map.press("ArrowRight");
    await map.press("ArrowRight");
    await page.locator(".map-frame .unseen", { hasText: "node-1" }).waitFor({ state: "attached" });
    await map.press("Enter");
    await page.waitForURL(/#\/node\/node-1/);
  },

  async "the log is searched, and what was found becomes a file"(page) {
    await open(page, "audit");
    await page.getByLabel("Word").fill("queue-0");
    await page.getByLabel("Type").fill("BindingPlanned");
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByTestId("events").getByText("planned for pod shop/queue-0").first().waitFor();
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
    const lines = readFileSync(await file.path(), "utf8").trim().split("\n").map((it) => JSON.parse(it));
    assert.ok(lines.length >= 2);
    assert.ok(lines.every((it) => it.type === "BindingPlanned"));
    // The file has all that was found, also what was not scrolled to.
    await open(page, "audit?actor=story");
    await page.getByRole("button", { name: "Earlier ones" }).waitFor();
    const [all] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
    assert.ok(readFileSync(await all.path(), "utf8").trim().split("\n").length > 100);
  },

  async "the present state is shown: who waits for what, and that the log is whole"(page) {
    // What is answered late moves nothing that can be pressed: it stands below, or is waited for by what does.
    const latency = await held(page, /audit\/latency/);
    await open(page, "now");
    await page.getByText("didn't find available persistent volumes to bind").first().waitFor();
    await latency.asked;
    const verify = page.getByRole("button", { name: "Verify the log" });
    await verify.waitFor();
    assert.equal(await page.getByText("Rollbacks, the latest").isVisible(), false);
    const place = await verify.boundingBox();
    await latency.letGo();
    await page.getByText("Rollbacks, the latest").waitFor();
    assert.deepEqual(await verify.boundingBox(), place);
    await verify.click();
    await page.getByText(/The log is whole up to event/).waitFor();
    await page.getByText(/ago, up to event \d+/).waitFor();
    // A binding that waits for a provisioner that nobody runs is named.
    await page.evaluate(async (token) => {
      const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
      const made = [
        ["/apis/storage.k8s.io/v1/storageclasses", { apiVersion: "storage.k8s.io/v1", kind: "StorageClass", metadata: { name: "nobodys" }, provisioner: "example.com/nobody", volumeBindingMode: "WaitForFirstConsumer" }],
        ["/api/v1/namespaces/shop/persistentvolumeclaims", { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name: "later" }, spec: { accessModes: ["ReadWriteOnce"], storageClassName: "nobodys", resources: { requests: { storage: "1Gi" } } } }],
        ["/api/v1/namespaces/shop/pods", { apiVersion: "v1", kind: "Pod", metadata: { name: "later" }, spec: { schedulerName: "volsched", containers: [{ name: "main", image: "app" }], volumes: [{ name: "v", persistentVolumeClaim: { claimName: "later" } }] } }],
      ];
      for (const [path, body] of made) await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    }, given.operator);
    await page.getByRole("group", { name: "Bindings in flight" }).getByRole("link", { name: "shop/later" }).waitFor();
    await open(page, "now?at=160");
    await page.getByRole("heading", { name: /^Then/ }).waitFor();
    // The binding whose volume was stolen is under way then.
    await page.getByRole("group", { name: "Bindings in flight" }).getByText("prebinding").waitFor();
    await page.getByText("its binding is in flight").waitFor();
  },

  async "what is hostile in a name, a note or an address is shown as text, and not executed"(page) {
    const hostile = "<img src=x onerror=document.title='executed'>";
    await open(page, "volume/n8-odd");
    await page.getByText("Manifest", { exact: true }).click();
    await page.getByText(hostile).first().waitFor();
    await open(page, `audit?text=${encodeURIComponent("onerror")}`);
    await page.getByTestId("events").getByText("created").first().waitFor();
    await open(page, `pod/${encodeURIComponent(hostile)}/${encodeURIComponent(hostile)}`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await open(page, `${encodeURIComponent(hostile)}`);
    await page.getByText("There is no page").waitFor();
    assert.equal(await page.locator("img[src=x]").count(), 0);
    assert.doesNotMatch(await page.title(), /^executed/);
  },

  async "a viewer of one namespace sees no other, in no list, no map and no timeline"(page) {
    await open(page, "map");
    await page.getByText("Choose a namespace").waitFor();
    await page.getByLabel("Namespace").fill("bank");
    await page.getByRole("button", { name: "Show it" }).click();
    await page.locator(".map-page").waitFor();
    await page.getByRole("button", { name: "List" }).click();
    await page.getByRole("link", { name: "bank/data-ledger-0" }).waitFor();
    assert.doesNotMatch(await page.locator("body").textContent(), /shop\//);
    await open(page, "pod/shop/db-0?ns=bank");
    await page.getByText(/is not yours to see/).first().waitFor();
    assert.doesNotMatch(await page.locator("main").textContent(), /data-db-0/);
    await open(page, "map?ns=shop");
    await page.getByText("Namespace shop is not yours to see").waitFor();
    assert.doesNotMatch(await page.locator("body").textContent(), /db-0/);
    await page.getByLabel("Namespace").fill("bank");
    await page.getByRole("button", { name: "Show it" }).click();
    await page.locator(".map-page").waitFor();
  },

  async "answers that are late, lost or broken leave no page in a wrong state"(page) {
    const drained = await held(page, (url) => url.pathname.endsWith("/simulate"));
    await open(page, "whatif?drain=node-0");
    await drained.asked;
    await open(page, "whatif?zone=zone-b");
    await drained.letGo();
    await page.locator(".verdict", { hasText: "lose zone zone-b" }).waitFor();
    // The choice of the next attempt is none of this one's.
    await page.getByRole("combobox").first().selectOption("drain");
    await page.locator(".verdict", { hasText: "lose zone zone-b" }).waitFor();

    await open(page, "map");
    await page.locator(".map-page").waitFor();
    let times = 0;
    await page.route(/map\?.*asOf=77/, (route) => {
      times += 1;
      return times === 1 ? route.abort() : times === 2 ? route.fulfill({ status: 200, body: '{"nodes": [' }) : route.continue();
    });
    await open(page, "map?at=77");
    await page.locator('.map-page[data-position="77"]').waitFor();
    assert.equal(times, 3);
    await page.unroute(/map\?.*asOf=77/);

    // What is still of another moment says so.
    const past = await held(page, /map\?.*asOf=78/);
    await open(page, "map?at=78");
    await page.getByText("this is still what was shown before").waitFor();
    await past.letGo();
    await page.locator('.map-page[data-position="78"]').waitFor();
    await page.getByText("this is still what was shown before").waitFor({ state: "detached" });

    await open(page, "now");
    await page.getByRole("button", { name: "Verify the log" }).waitFor();
    await page.context().setOffline(true);
    await page.getByText("the server does not answer").first().waitFor();
    // The page stays, and one that is opened meanwhile comes when the server does.
    await page.getByText("Pending pods by reason").waitFor();
    await page.evaluate(() => { location.hash = "#/volume/n7-small"; });
    await page.getByText("This volume: the server does not answer").waitFor();
    await page.context().setOffline(false);
    await page.getByText("At this moment").waitFor();
    await page.waitForFunction(() => !document.body.textContent.includes("the server does not answer"));
  },

  async "a mistyped address is reported, with a way back"(page) {
    for (const [place, told] of [["map?at=abc", "neither a position nor a time"], ["map?vs=abc", "neither a position nor a time"],
      ["pod/%", "This pod"], ["map?at=99999999", "does not exist yet"], ["map?size=huge&from=x&to=y", "By class and place"], ["nowhere", "There is no page"]]) {
      await open(page, place);
      await page.getByText(told).first().waitFor();
      // The slider is there, and leads back to now.
      await page.getByRole("button", { name: /Live|Go live/ }).click();
      await page.getByText(/Live · /).waitFor();
    }
  },

  async "a token that is refused is asked for again with the reason, and who signs out leaves nothing behind"() {
    const page = await signedIn(browser, given.auditor);
    await open(page, "pod/shop/archive-0");
    await page.getByTestId("remedies").waitFor();
    const all = await held(page, /\/apis\//);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("Token").waitFor();
    assert.doesNotMatch(await page.locator("body").textContent(), /archive-0|event \d/);
    await all.letGo();
    await page.getByLabel("Token").fill("no-token-of-this-server");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("The token was refused").waitFor();
    await page.getByLabel("Token").fill(given.auditor);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByTestId("remedies").waitFor();
    assert.deepEqual(page.complaints, []);
    await page.goto("about:blank");
  },

  async "no page has a finding of axe, light or dark, wide or on a phone"(page) {
    const wrong = [];
    const pages = ["map", "map?view=list", "now", "whatif", "audit", "drills", "pod/shop/archive-0", "volume/n7-large?only=1", "node/node-1", `binding/${given.undone}`];
    for (const [scheme, width] of [["light", 1280], ["dark", 390]]) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height: 800 });
      for (const place of pages) {
        await open(page, place);
        await page.locator("main .card").first().waitFor();
        await page.evaluate(AXE);
        const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
        for (const it of violations) {
          wrong.push(`${place} ${scheme}: ${it.id} ${it.nodes.slice(0, 3).map((one) => one.html.slice(0, 120)).join(" | ")}`);
        }
        const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        if (over > 1) wrong.push(`${place} ${scheme}: ${over} px wider than the window`);
      }
    }
    assert.deepEqual(wrong, []);
  },
};

async function open(page, place) {
  await page.goto(`${given.url}/ui/#/${place}`);
}

/** Answers to what matches wait until they are let go; the first of them says when it is waited for. */
async function held(page, matching) {
  let wasAsked, open;
  const asked = new Promise((resolve) => { wasAsked = resolve; });
  const gate = new Promise((resolve) => { open = resolve; });
  const ended = [];
  await page.route(matching, (route) => {
    wasAsked();
    ended.push(gate.then(() => route.continue()).catch(() => undefined));
  });
  return {
    asked,
    async letGo() {
      open();
      await Promise.all(ended);
      await page.unroute(matching);
    },
  };
}

async function signedIn(browser, token) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 800 }, reducedMotion: "reduce" });
  context.setDefaultTimeout(HANG_MILLISECONDS);
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // A refused question is answered on the page; the browser writes it down as well.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) page.complaints.push(message.text());
  });
  page.unanswered = new Set();
  page.on("request", (request) => page.unanswered.add(request));
  for (const end of ["requestfinished", "requestfailed"]) page.on(end, (request) => page.unanswered.delete(request));
  page.on("request", (request) => {
    if (!/^(blob|data):/.test(request.url()) && new URL(request.url()).origin !== given.url) page.complaints.push(`foreign: ${request.url()}`);
  });
  await page.goto(`${given.url}/ui/`);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText(/Live|Choose a namespace/).first().waitFor();
  return page;
}

const browser = await chromium.launch({ executablePath: await packed.executablePath(), args: packed.args, headless: true });
const auditor = await signedIn(browser, given.auditor);
for (const [name, play] of Object.entries(stories)) {
  if (given.only && !name.includes(given.only)) continue;
  const page = name.includes("viewer") ? await signedIn(browser, given.viewer) : auditor;
  let wrong = null;
  try {
    await play(page);
    assert.deepEqual(page.complaints, []);
  } catch (error) {
    const waiting = [...page.unanswered].map((it) => `\nnot answered: ${it.method()} ${it.url()}`).join("");
    wrong = `${error.message}\nat ${page.url()}${waiting}\n${(await page.locator("body").innerText().catch(() => "")).slice(0, 1500)}`;
    page.complaints = [];
  }
  console.log(JSON.stringify({ story: name, wrong }));
}
await browser.close();
