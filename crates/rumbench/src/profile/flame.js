const whole = document.documentElement.viewBox.baseVal.width;
const boxes = [...document.querySelectorAll("g.b")].map((g) => ({
  g, x: +g.dataset.x, w: +g.dataset.w, y: +g.querySelector("rect").getAttribute("y"),
  name: g.querySelector("title").textContent.replace(/ \([^(]*\)$/, ""),
}));
const tip = document.getElementById("tip"), hint = tip.textContent;
function show(x, w, y) {
  for (const b of boxes) {
    const under = b.y > y, left = Math.max(b.x, x), right = Math.min(b.x + b.w, x + w);
    const seen = right - left > 1e-6 * w && (under || b.w <= w + 0.01);
    b.g.classList.toggle("off", !seen);
    if (!seen) continue;
    const at = (left - x) / w * whole, width = (right - left) / w * whole;
    const [rect, text] = [b.g.querySelector("rect"), b.g.querySelector("text")];
    rect.setAttribute("x", at);
    rect.setAttribute("width", width);
    text.setAttribute("x", at + 3);
    const letters = Math.floor(width / 6.4);
    text.textContent = letters < 4 ? "" : b.name.length <= letters ? b.name : b.name.slice(0, letters - 2) + "..";
  }
}
for (const b of boxes) {
  const tell = () => { tip.textContent = b.g.querySelector("title").textContent; };
  const forget = () => { tip.textContent = hint; };
  b.g.addEventListener("click", () => show(b.x, b.w, b.y));
  b.g.addEventListener("keydown", (e) => { if (e.key === "Enter") show(b.x, b.w, b.y); });
  for (const event of ["mouseenter", "focus"]) b.g.addEventListener(event, tell);
  for (const event of ["mouseleave", "blur"]) b.g.addEventListener(event, forget);
}
addEventListener("keydown", (e) => { if (e.key === "Escape") show(0, whole, Infinity); });
