/**
 * A page of a file in a real browser, with the packages that test the console:
 *
 *     node open_page.mjs '{"web": ".../volsched/console/web", "page": "file:///...", "shot": "shot.png"}'
 *
 * prints what the browser has made of it.
 */
import { createRequire } from "node:module";

const given = JSON.parse(process.argv[2]);
const require = createRequire(`${given.web}/package.json`);
const { default: packed } = await import(require.resolve("@sparticuz/chromium"));
const { chromium } = require("playwright-core");

const browser = await chromium.launch({ executablePath: await packed.executablePath(), args: packed.args, headless: true });
const page = await browser.newPage({ viewport: { width: 1240, height: 900 } });
await page.goto(given.page);
await page.screenshot({ path: given.shot });
console.log(await page.content());
await browser.close();
