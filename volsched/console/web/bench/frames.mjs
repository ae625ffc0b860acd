/** `node frames.mjs URL`: how long the map takes to its first picture, and its frames while it is scrolled; as JSON. */
import packed from "@sparticuz/chromium";
import { chromium } from "playwright-core";

const [url] = process.argv.slice(2);
const PATIENCE_MILLISECONDS = 240_000;
const browser = await chromium.launch({ executablePath: await packed.executablePath(), args: packed.args, headless: true });
const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
page.setDefaultTimeout(PATIENCE_MILLISECONDS);
const begun = performance.now();
await page.goto(`${url}/ui/#/map?by=topology.kubernetes.io/zone,topology.example.com/rack`);
// A canvas is as wide as its frame once it was painted, and 300 before.
await page.waitForFunction(() => (document.querySelector(".map-canvas")?.width ?? 300) !== 300);
const told = { "browser: until the first picture": performance.now() - begun };
for (const size of ["Overview", "Compact", "Names"]) {
  await page.getByRole("button", { name: size }).click();
  const frames = await page.evaluate(() => new Promise((done) => {
    const frame = document.querySelector(".map-frame");
    const spent = [];
    let last = performance.now();
    const next = () => {
      const now = performance.now();
      spent.push(now - last);
      last = now;
      frame.scrollTop += 120;
      if (spent.length < 120) requestAnimationFrame(next);
      else done(spent.sort((a, b) => a - b));
    };
    requestAnimationFrame(next);
  }));
  told[`browser: a frame while ${size} is scrolled, median`] = frames[60];
  told[`browser: a frame while ${size} is scrolled, 95 %`] = frames[114];
}
console.log(JSON.stringify(told));
await browser.close();
