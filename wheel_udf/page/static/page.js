// Refreshes the figures and explains the marks of charts. Without this script the page shows its last load.
"use strict";

const main = document.getElementById("main");
const lost = document.getElementById("lost");
const tip = document.getElementById("tip");
const changing = document.getElementById("changing") || main;

// Only changed sections are replaced, to keep clicks, the focus and open tables. A form's secret always differs.
function bare(section) {
  const copy = section.cloneNode(true);
  copy.querySelectorAll("input[name=csrf_token]").forEach((input) => input.removeAttribute("value"));
  copy.querySelectorAll("details").forEach((details) => details.removeAttribute("open"));
  return copy.innerHTML + copy.className;
}

function replaceSections(html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  const parts = (root) => [...root.querySelectorAll("[id^='live-'], section[id]")];
  const before = parts(changing), after = parts(fresh.content);
  const focused = document.activeElement && document.activeElement.closest("details[id]");
  const open = [...changing.querySelectorAll("details[open]")].map((details) => details.id);
  if (before.map((part) => part.id).join() !== after.map((part) => part.id).join()) {
    changing.replaceChildren(fresh.content);
  } else {
    before.forEach((part, place) => { if (bare(part) !== bare(after[place])) part.replaceWith(after[place]); });
  }
  open.forEach((id) => { const details = document.getElementById(id); if (details) details.open = true; });
  if (focused) {
    const again = document.getElementById(focused.id);
    if (again && !again.contains(document.activeElement)) again.querySelector("summary").focus({ preventScroll: true });
  }
}

async function refresh() {
  const isDone = main.dataset.live.includes("find") && changing.querySelector("[data-done]");
  if (document.visibilityState === "visible" && !isDone) {
    try {
      const answer = await fetch(main.dataset.live, { redirect: "error" });
      if (!answer.ok) throw new Error(answer.status);
      replaceSections(await answer.text());
      lost.hidden = true;
    } catch {
      lost.hidden = false;
    }
  }
  setTimeout(refresh, Number(main.dataset.every));
}

function showTip(event) {
  const marked = event.target.closest && event.target.closest("[data-tip]");
  tip.hidden = !marked;
  if (!marked) return;
  tip.textContent = marked.dataset.tip;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  const below = event.clientY + 18;
  tip.style.top = `${below + box.height > innerHeight ? event.clientY - box.height - 12 : below}px`;
}

document.addEventListener("pointermove", showTip);
document.addEventListener("pointerdown", showTip);
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
const isTask = location.pathname.split("/").length > 2;
if (main.dataset.live && (changing === main || isTask || main.dataset.live.includes("acts"))) {
  setTimeout(refresh, Number(main.dataset.every));
}
