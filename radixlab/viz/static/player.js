// The step player of radixlab: shows pictures that Python has made, one after another.
// A frame: {number, name, caption, event, sizes, waiting, running, told, question, tree, pools, code}.

const SPEEDS = [[0.5, "slow"], [1, "normal"], [2, "fast"]];
const SECONDS = 2.4; // a frame at normal speed
const SMALLEST = 0.75; // a wide picture shrinks to this, then it scrolls
const MARKED = ["evicted", "created", "split", "locked", "unlocked", "matched"].map((event) => `.box.${event}`).join();
const STATES = ["free", "evictable", "protected", "private"];

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Drawn, since not every font has the signs: bars and triangles of a 16 x 16 square.
const ICONS = {
  first: "M3 3h2v10H3zM14 3v10L6 8z", back: "M12 3v10L4 8z",
  next: "M4 3v10l8-5z", end: "M11 3h2v10h-2zM2 3v10l8-5z",
};

function icon(name) {
  const picture = make("span", { "aria-hidden": "true" });
  picture.innerHTML = `<svg viewBox="0 0 16 16" width="16" height="16"><path fill="currentColor" d="${ICONS[name]}"/></svg>`;
  return picture;
}

const replace = (element, ...children) => element.replaceChildren(...children);

function render({ model, el }) {
  const { start: beginning, frames, pictures, parts, sources, treeWidth, poolWidth } = model.get("story");
  const last = frames.length - 1;
  const title = model.get("title");
  let revealed = frames.findIndex((frame) => frame.question) < 0 ? last : -1;
  let asking = false; // the question of frame `index` stands before it
  let timer = null;

  const index = () => Math.min(Math.max(model.get("index"), 0), last);
  const button = (label, sign, act) =>
    make("button", { type: "button", "aria-label": label, title: label, onclick: act }, sign);

  const first = button("First step", icon("first"), () => go(0));
  const back = button("Back one step", icon("back"), () => go(index() - 1));
  const next = button("Next step", icon("next"), () => forward());
  const end = button("Last step", icon("end"), () => go(last));
  const playing = button("Play", "Play", () => (timer ? stop() : start()));
  playing.className = "rl-play";
  const slider = make("input", {
    type: "range", min: 1, max: last + 1, "aria-label": "Step", oninput: () => go(slider.value - 1),
  });
  const jump = make("input", {
    type: "number", min: 1, max: last + 1, "aria-label": "Jump to step",
    onchange: () => { if (jump.value) go(Math.round(jump.value) - 1); else show(); },
  });
  const speed = make("select", { "aria-label": "Speed", onchange: () => timer && start() },
    ...SPEEDS.map(([factor, word]) => make("option", { value: factor, selected: factor === 1 }, word)));
  const controls = make("div", { class: "rl-controls", role: "group", "aria-label": "Steps" },
    make("span", { class: "rl-buttons" }, first, back, next, end, playing),
    slider,
    make("span", { class: "rl-where" }, make("span", {}, "Step "), jump, ` of ${last + 1}`),
    speed);

  const heading = make("p", { class: "rl-title" }, title);
  const step = make("span", { class: "rl-step" });
  const caption = make("span", {});
  const reveal = make("button", { type: "button", class: "rl-reveal", onclick: () => forward() },
    "Show what happens");
  const note = make("span", { class: "rl-note" }, "The picture shows the state before.");
  const line = make("p", { class: "rl-caption" }, step, caption);
  const ask = make("div", { class: "rl-ask" }, reveal, note);
  const says = make("div", { class: revealed < last ? "rl-says rl-asks" : "rl-says" }, line, ask);
  const books = make("div", { class: "rl-books" });
  const tree = make("div", { class: "rl-tree rl-scroll" });
  const pool = make("div", { class: "rl-pool rl-scroll" });
  const code = make("div", { class: "rl-code" });
  const stage = make("div", { class: "rl-stage", tabindex: 0, role: "group",
    style: `--tree: ${treeWidth}px; --pool: ${poolWidth}px`,
    "aria-label": `${title}: picture and code of the step. Arrow keys step, Home and End jump.` }, tree, pool, code);
  const live = make("div", { class: "rl-live", "aria-live": "polite", role: "status" });
  const all = make("details", { class: "rl-all" }, make("summary", {}, `All ${last + 1} step${last ? "s" : ""} as text`),
    make("ol", {}, ...frames.map((frame) => make("li", {},
      make("b", {}, `${frame.number} ${frame.name}. `), `${frame.caption} `,
      make("span", {}, frame.told + sizes(frame))))));
  // With a tabindex a click on plain text brings the focus here, and with it the keys.
  const root = make("div", { class: "radixlab rl-player", role: "region", "aria-label": title, tabindex: -1,
    "data-lm-suppress-shortcuts": "true", onkeydown: key },
    heading, controls, says, books, stage, live, all);

  function sizes({ sizes }) {
    return STATES.map((state, i) => `${state} ${sizes[i]}`).join(", ") + ".";
  }

  // --- moving ---------------------------------------------------------------------------------
  function go(to) {
    to = Math.min(Math.max(to, 0), last);
    asking = to > revealed && Boolean(frames[to].question);
    if (!asking) revealed = Math.max(revealed, to);
    if (to === index()) return show();
    model.set("index", to);
    model.save_changes();
  }

  function forward() {
    if (!asking) return go(index() + 1);
    asking = false;
    revealed = Math.max(revealed, index());
    show();
  }

  function start() {
    stop();
    if (index() === last && !asking) go(0);
    playing.textContent = "Pause";
    playing.setAttribute("aria-label", "Pause");
    timer = setInterval(() => (index() === last && !asking ? stop() : forward()),
      (SECONDS * 1000) / Number(speed.value));
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    playing.textContent = "Play";
    playing.setAttribute("aria-label", "Play");
  }

  function key(event) {
    const moves = { ArrowRight: forward, ArrowDown: forward, ArrowLeft: () => go(index() - 1),
      ArrowUp: () => go(index() - 1), Home: () => go(0), End: () => go(last) };
    event.stopPropagation(); // the notebook has keys of its own
    if (event.ctrlKey || event.metaKey || event.altKey || !moves[event.key]) return;
    if (["INPUT", "SELECT", "SUMMARY"].includes(event.target.tagName)) return;
    event.preventDefault(); // the page stays where it is
    moves[event.key]();
  }

  // --- showing --------------------------------------------------------------------------------
  function show() {
    const pressed = root.getRootNode().activeElement;
    const held = pressed !== root && root.contains(pressed);
    const now = index();
    const frame = frames[now];
    const seen = asking ? frames[now - 1] ?? beginning : frame;
    step.textContent = `${frame.number} ${frame.name}`;
    step.className = `rl-step ${asking ? "" : frame.event}`;
    caption.textContent = asking ? frame.question : frame.caption;
    root.classList.toggle("rl-asking", asking);
    ask.hidden = !asking;
    const blank = !seen;
    note.hidden = !asking || blank;
    draw(tree, blank ? [] : [seen.tree], "Radix tree");
    draw(pool, blank ? [] : seen.pools, "Page tables and pool");
    replace(books, ...(blank ? [] : list(seen)));
    replace(code, ...(asking ? [] : frame.code.map(listing)));
    for (const mark of code.querySelectorAll(".rl-marked")) {
      const box = mark.closest("pre");
      box.scrollTop = mark.offsetTop - box.offsetTop - box.clientHeight / 2;
    }
    slider.value = jump.value = now + 1;
    slider.setAttribute("aria-valuetext", `Step ${now + 1} of ${last + 1}, ${frame.name}`);
    first.disabled = back.disabled = now === 0;
    next.disabled = end.disabled = now === last && !asking;
    live.textContent = `Step ${now + 1} of ${last + 1}, ${frame.name}. ${caption.textContent}`;
    // What is gone, or can't have the focus any more, leaves it to the stage.
    const lost = !root.contains(pressed) || pressed.disabled || pressed.closest("[hidden]") || pressed.tabIndex < 0;
    if (held && lost) stage.focus({ preventScroll: true });
  }

  // Of a wide and a slim picture the style sheet shows one.
  function draw(box, numbers, label) {
    if (box.dataset.picture === String(numbers)) return;
    box.dataset.picture = numbers;
    box.innerHTML = numbers.map((number) => pictures[number].map((part) => parts[part]).join("")).join("");
    for (const svg of box.children) svg.style.minWidth = `${SMALLEST * svg.getAttribute("width")}px`;
    const marked = box.querySelector(MARKED);
    if (marked) {
      const { left, width } = marked.getBoundingClientRect();
      box.scrollLeft += left + width / 2 - box.getBoundingClientRect().left - box.clientWidth / 2;
    }
    // Who can't use a pointer scrolls a wide picture with the keys.
    const wide = box.scrollWidth > box.clientWidth + 1;
    for (const [name, value] of [["tabindex", 0], ["role", "group"], ["aria-label", label]]) {
      if (wide) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  }

  function list(frame) {
    const counts = STATES.map((state, i) =>
      make("span", { class: `rl-count ${state}` }, make("i", {}), `${state} `, make("b", {}, frame.sizes[i])));
    const people = [["waiting", frame.waiting], ["running", frame.running]].map(([word, ids]) =>
      make("span", { class: "rl-people" }, `${word}: `, make("b", {}, ids)));
    return [...people, ...counts];
  }

  function listing([number, marked, event]) {
    const { name, file, lines } = sources[number];
    const body = make("code", {}, ...lines.map(([at, text]) => {
      const here = at === marked;
      return make("span", { class: here ? `rl-line rl-marked ${event}` : "rl-line" },
        make("i", {}, String(at)), here ? make("em", {}, "▶") : " ", `${text}\n`);
    }));
    return make("figure", {},
      make("figcaption", {}, make("b", {}, name), ` ${file}`),
      make("pre", { tabindex: 0, role: "group", "aria-label": `Source of ${name}` }, body));
  }

  const unfold = () => all.setAttribute("open", "");
  addEventListener("beforeprint", unfold);
  model.on("change:index", show);
  el.append(root);
  go(index());
  return () => {
    stop();
    removeEventListener("beforeprint", unfold);
    model.off("change:index", show);
  };
}

export default { render };
