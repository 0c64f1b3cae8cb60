// Opens report pages in Chromium and uses them as a reader would: at three widths, light and dark,
// printed, without scripts, hovering, sorting and hiding engines, by pointer and by keyboard.
// Fails on a message on the console, a request other than for the page itself, text that leaves its
// box, and any violation of WCAG 2.1, levels A and AA, that axe-core finds, contrast included.
// OUT receives screenshots and PDFs for review. (A Rust test checks the HTML with html5ever.)
//
//   node report.mjs CHROMIUM PAGES OUT
//
// PAGES is a folder of pages, for example written by `cargo test -p rumbench html` with
// RUMBENCH_TEST_PAGES set. playwright-core and axe-core come from PLAYWRIGHT_FOLDER.
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [chromium, pages, out] = process.argv.slice(2);
if (!out) {
  console.error("usage: node report.mjs CHROMIUM PAGES OUT");
  process.exit(2);
}
const require = createRequire(join(resolve(process.env.PLAYWRIGHT_FOLDER ?? "."), "x.js"));
const playwright = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core"), "utf8");

const size = (path) => statSync(path).size;
// On a large page, a picture of the whole and the colors of every text take a minute each.
const isLarge = (path) => size(path) > 400_000;

const WIDTHS = [360, 900, 1600];
const SCHEMES = ["light", "dark"];
// Rules of axe-core.
const LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"];
let checks = 0;
const failures = [];
const check = (page, what, found) => {
  checks += 1;
  if (!found) failures.push(`${page}: ${what}`);
};

const browser = await playwright.chromium.launch({
  executablePath: chromium,
  // Other steps of CI run beside this one.
  timeout: 420_000,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

// Opens a page and collects forbidden events: console messages, errors, other requests, dialogs.
const open = async (file, options) => {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  // On a busy machine, a picture of the largest page takes most of a minute.
  page.setDefaultTimeout(120_000);
  const own = pathToFileURL(resolve(file)).href;
  const wrong = [];
  page.on("console", (message) => wrong.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("request", (request) => { if (request.url() !== own) wrong.push(`request: ${request.url()}`); });
  page.on("dialog", (dialog) => { wrong.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(own);
  return { page, wrong, close: () => context.close() };
};

// Finds a page that is wider than the window, and labels of a chart that overlap.
const layout = () => {
  const wrong = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth + 1) wrong.push(`page is ${root.scrollWidth} wide in a window of ${root.clientWidth}`);
  for (const labels of document.querySelectorAll(".x, .y")) {
    const boxes = [...labels.children].map((label) => label.getBoundingClientRect()).filter((box) => box.width > 0);
    for (let i = 1; i < boxes.length; i += 1) {
      const [a, b] = [boxes[i - 1], boxes[i]];
      const apart = labels.className === "x" ? a.right <= b.left + 1 : b.bottom <= a.top + 1;
      if (!apart) wrong.push(`labels overlap: ${labels.textContent}`);
    }
  }
  return wrong;
};

const unfold = (page) => page.locator("details").evaluateAll((all) => all.forEach((node) => { node.open = true; }));

const looks = async (file, name) => {
  const { page, wrong, close } = await open(file, { viewport: { width: WIDTHS[0], height: 900 } });
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(out, `${name}-${width}-${colorScheme}.png`) });
      const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const dark = background.match(/\d+/g).map(Number).reduce((sum, part) => sum + part) < 200;
      check(name, `${colorScheme} has the background ${background}`, dark === (colorScheme === "dark"));
    }
  }
  await unfold(page);
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      for (const problem of await page.evaluate(layout)) check(name, `${width} ${colorScheme}: ${problem}`, false);
    }
  }
  check(name, wrong.join("; "), wrong.length === 0);
  await accessible(page, name, isLarge(file));
  await close();
};

// Marks the first text of each kind: its element and all around it have the same tags and classes
// as those of the other texts of this kind, so they have the same colors.
const markKinds = () => {
  const kinds = new Set();
  const kindOf = (node) => (node ? `${kindOf(node.parentElement)} ${node.localName}.${node.getAttribute("class") ?? ""}` : "");
  for (const node of document.body.querySelectorAll("*")) {
    const hasText = [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
    const kind = hasText && kindOf(node);
    if (hasText && !kinds.has(kind)) node.setAttribute("data-kind", kinds.add(kind).size);
  }
};

// Judges the page in both schemes. On a large page, judges contrast for one text of each kind.
const accessible = async (page, name, large) => {
  await page.addScriptTag({ content: axe });
  if (large) await page.evaluate(markKinds);
  const judge = async (colorScheme, where, least, options) => {
    await page.emulateMedia({ colorScheme });
    const found = await page.evaluate(([where, options]) => axe.run(where ?? document, options), [where, { resultTypes: ["violations"], ...options }]);
    check(name, `${colorScheme}: axe-core tried nothing`, found.passes.length >= least);
    for (const problem of found.violations) {
      check(name, `${colorScheme}: ${problem.id} (${problem.help}): ${problem.nodes.slice(0, 3).map((node) => node.html).join(" ")}`, false);
    }
  };
  for (const scheme of SCHEMES) {
    await judge(scheme, null, 11, { runOnly: LEVELS, rules: { "color-contrast": { enabled: !large } } });
    if (large) await judge(scheme, { include: ["[data-kind]"] }, 1, { runOnly: ["color-contrast"] });
  }
};

const withoutScripts = async (file, name) => {
  const { page, wrong, close } = await open(file, { viewport: { width: 900, height: 900 }, javaScriptEnabled: false });
  await page.screenshot({ path: join(out, `${name}-noscript.png`) });
  check(name, "without scripts the verdict is there", (await page.locator("ul.verdict li").count()) > 0);
  check(name, "without scripts tables are there", (await page.locator("table.sortable tbody tr").count()) > 0);
  check(name, "without scripts the explanation is there", (await page.locator(`h2[id$="-why"], h2#warnings`).count()) > 0);
  check(name, "without scripts there is nothing to press", (await page.locator("button").count()) === 0);
  check(name, `without scripts: ${wrong.join("; ")}`, wrong.length === 0);
  await close();
};

const printed = async (file, name) => {
  const { page, wrong, close } = await open(file, { viewport: { width: 900, height: 900 } });
  const pdf = await page.pdf({ path: join(out, `${name}.pdf`), format: "A4", margin: { top: "12mm", bottom: "12mm", left: "12mm", right: "12mm" } });
  check(name, "the print has pages", pdf.length > 10_000);
  check(name, `printing: ${wrong.join("; ")}`, wrong.length === 0);
  await close();
};

const numbers = (cells) => cells.map((text) => Number(text.replace(/ [GR+-](?= |$)|[,!\s]/g, "")));

// Checks that a chart zooms to a part of its axis, by dragging or around the position of the arrow
// keys, and back to the whole axis.
const zoomed = async (page, chart, name) => {
  const labels = () => chart.evaluate((svg) => {
    const holder = svg.closest("[data-x]");
    const labels = (holder === svg ? svg.closest(".frame") : holder).querySelector(".x");
    return labels ? labels.textContent : "";
  });
  const view = async () => (await chart.getAttribute("viewBox")).split(" ").map(Number);
  const [before, all] = [await labels(), await view()];
  const box = await chart.boundingBox();
  const drag = async (from, to) => {
    await page.mouse.move(box.x + box.width * from, box.y + box.height / 2);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * to, box.y + box.height / 2, { steps: 4 });
    await page.mouse.up();
  };
  await drag(0.75, 0.25);
  const [left, , width] = await view();
  check(name, `half of the axis is shown: from ${left} ${width}`, Math.abs(left - 250) < 5 && Math.abs(width - 500) < 5);
  check(name, "its labels are of that half", (await labels()) !== before);
  await page.screenshot({ path: join(out, `${name}-zoomed.png`) });
  await drag(0, 0.5);
  check(name, "and half of that", Math.abs((await view())[2] - 250) < 5);
  await drag(0.5, 0.501);
  check(name, "a click is no part", Math.abs((await view())[2] - 250) < 5);
  await page.mouse.dblclick(box.x + box.width / 2, box.y + box.height / 2);
  check(name, "a double click shows all", String(await view()) === String(all) && (await labels()) === before);
  await chart.focus();
  await page.keyboard.press("+");
  check(name, "plus shows half", Math.abs((await view())[2] - 500) < 1);
  await page.keyboard.press("-");
  check(name, "minus shows all", String(await view()) === String(all) && (await labels()) === before);
  await page.keyboard.press("+");
  await page.keyboard.press("Escape");
  check(name, "Escape shows all", String(await view()) === String(all));
  await page.mouse.move(0, 0);
};

const used = async (file, name) => {
  const { page, wrong, close } = await open(file, { viewport: { width: 1200, height: 900 } });
  // Sorts by the first column of numbers, in both directions.
  const table = page.locator("table.sortable").first();
  const cells = async (place) => numbers(await table.locator(`tbody tr td:nth-child(${place})`).allTextContents());
  let place = 2;
  while ((await cells(place)).some(Number.isNaN)) place += 1;
  const column = () => cells(place);
  const button = table.locator(`thead th:nth-child(${place}) button`);
  await button.click();
  const up = await column();
  check(name, `sorted up: ${up}`, up.every((value, i) => i === 0 || up[i - 1] <= value));
  await button.press("Enter");
  const down = await column();
  check(name, `sorted down by keyboard: ${down}`, down.every((value, i) => i === 0 || down[i - 1] >= value));
  // Shows the definition of a metric, by pointer and by keyboard.
  const term = page.locator('thead a[href^="#m-"]').first();
  const tip = page.locator("#tip");
  await term.hover();
  check(name, "a header explains itself", (await tip.isVisible()) && (await tip.textContent()).length > 30);
  await page.mouse.move(0, 0);
  check(name, "the explanation goes away", await tip.isHidden());
  await term.focus();
  check(name, "a focused header explains itself", await tip.isVisible());
  await page.keyboard.press("Escape");
  check(name, "Escape closes it", await tip.isHidden());
  // Follows the link of a sentence to its figures.
  const why = page.locator('li[class^="why-"] a').first();
  if (await why.count()) {
    await why.evaluate((node) => { const folded = node.closest("details"); if (folded) folded.open = true; });
    await why.focus();
    await page.keyboard.press("Enter");
    // The key press returns before the browser reports the new address.
    const hash = await why.getAttribute("href");
    await page.waitForURL((url) => url.hash === hash);
    const target = page.locator(hash);
    check(name, "a sentence leads to its figures", (await target.count()) === 1 && (await target.isVisible()));
    await why.evaluate((node) => { const folded = node.closest("details"); if (folded) folded.open = false; });
  }
  // Shows values at the pointer and at the position of the arrow keys.
  const chart = page.locator("svg[data-y]").first();
  if (await chart.count()) {
    await chart.scrollIntoViewIfNeeded();
    const box = await chart.boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    check(name, "a chart tells its values", (await tip.isVisible()) && /\d/.test(await tip.textContent()));
    await page.screenshot({ path: join(out, `${name}-hover.png`) });
    await page.mouse.move(0, 0);
    await chart.focus();
    await page.keyboard.press("ArrowRight");
    check(name, "arrow keys tell values", await tip.isVisible());
    await page.keyboard.press("Escape");
  }
  // Charts with an axis of names do not zoom.
  const measured = page.locator("svg[data-y]:not([data-names])").first();
  if (await measured.count()) {
    await measured.scrollIntoViewIfNeeded();
    await zoomed(page, measured, name);
  }
  // Hides an engine in all charts and shows it again.
  const entry = page.locator('.legend li[class^="k"] button').first();
  if (await entry.count()) {
    const engine = (await entry.locator("..").getAttribute("class")).slice(1);
    const curves = page.locator(`.frame path.s${engine}`);
    const visible = () => curves.evaluateAll((all) => all.filter((path) => getComputedStyle(path).display !== "none").length);
    const before = await visible();
    await entry.click();
    check(name, "its curves are gone", before > 0 && (await visible()) === 0);
    check(name, "its button is not pressed", (await entry.getAttribute("aria-pressed")) === "false");
    await entry.click();
    check(name, "its curves are back", (await visible()) === before);
  }
  // Unfolds time lines by keyboard.
  const folded = page.locator("summary").first();
  if (await folded.count()) {
    await folded.focus();
    await page.keyboard.press("Enter");
    check(name, "a time line unfolds", await folded.evaluate((node) => node.parentElement.open));
    await folded.scrollIntoViewIfNeeded();
    await page.screenshot({ path: join(out, `${name}-unfolded.png`) });
  }
  check(name, `while using it: ${wrong.join("; ")}`, wrong.length === 0);
  if (!isLarge(file)) await page.screenshot({ path: join(out, `${name}-full.png`), fullPage: true });
  await close();
};

// Checks the page of several runs, without scripts: verdicts, bars, and a link to each run.
const leads = async (file, name) => {
  const { page, wrong, close } = await open(file, { viewport: { width: 900, height: 900 }, javaScriptEnabled: false });
  const links = await page.locator("h2 a").evaluateAll((all) => all.map((link) => link.getAttribute("href")));
  check(name, `it leads to ${links}`, links.length > 1 && links.every((link) => /^[\w-]+\/report\.html$/.test(link)));
  check(name, "each run has its verdict", (await page.locator("ul.verdict").count()) >= links.length);
  check(name, `without scripts: ${wrong.join("; ")}`, wrong.length === 0);
  await close();
};

// Checks a flame graph: a clicked box becomes as wide as the picture, boxes next to it disappear,
// and Escape restores all boxes.
const flames = async (file, name) => {
  const { page, wrong, close } = await open(file, { viewport: { width: 1300, height: 600 } });
  await page.screenshot({ path: join(out, `${name}.png`) });
  const boxes = page.locator("g.b");
  const width = (box) => box.locator("rect").evaluate((rect) => Number(rect.getAttribute("width")));
  const shown = () => page.locator("g.b:not(.off)").count();
  const whole = await page.evaluate(() => document.documentElement.viewBox.baseVal.width);
  const [all, narrow] = [await shown(), boxes.filter({ hasText: "read_" })];
  const before = await width(narrow);
  await narrow.locator("rect").hover();
  check(name, "a box under the pointer is told", (await page.locator("#tip").textContent()).includes("samples"));
  await narrow.locator("rect").click();
  check(name, "a clicked box is as wide as the picture", before < whole && (await width(narrow)) === whole);
  check(name, "what is beside it is gone, its callers are not", (await shown()) < all && (await shown()) === 4);
  await page.keyboard.press("Escape");
  check(name, "Escape brings all back", (await shown()) === all && Math.abs((await width(narrow)) - before) < 0.1);
  await narrow.focus();
  await page.keyboard.press("Enter");
  check(name, "Enter does what a click does", (await width(narrow)) === whole);
  check(name, wrong.join("; "), wrong.length === 0);
  await close();
  const still = await open(file, { viewport: { width: 1300, height: 600 }, javaScriptEnabled: false });
  check(name, "without scripts the boxes are there", (await still.page.locator("g.b").count()) === all);
  await still.close();
};

mkdirSync(out, { recursive: true });
const pictures = readdirSync(pages).filter((file) => file.endsWith(".svg"));
for (const file of pictures) await flames(join(pages, file), basename(file, ".svg"));
const files = readdirSync(pages).filter((file) => file.endsWith(".html"));
const whole = async (file) => {
  const [path, name] = [join(pages, file), basename(file, ".html")];
  await looks(path, name);
  await printed(path, name);
  if (name === "index") {
    await leads(path, name);
  } else {
    await withoutScripts(path, name);
    await used(path, name);
  }
};

// Two pages at a time, the largest first.
const waiting = files.toSorted((a, b) => size(join(pages, b)) - size(join(pages, a)));
const worker = async () => {
  for (let file = waiting.shift(); file; file = waiting.shift()) await whole(file);
};
await Promise.all([worker(), worker()]);
await browser.close();
check("all", "there are pages", files.length > 0 && pictures.length > 0);
for (const failure of failures) console.error(`failed: ${failure}`);
console.log(`${checks - failures.length} passed, ${failures.length} failed`);
process.exit(failures.length > 0 ? 1 : 0);
