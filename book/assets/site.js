// What the theme lacks for keyboards, phones and ears.
{
  // --- buttons and drawers ---------------------------------------------------------------------
  // The theme takes the focus from a button that was pressed: then nobody knows where they are.
  for (const button of document.querySelectorAll("button")) button.blur = () => {};

  for (const [drawer, name] of [["primary", "Chapters"], ["secondary", "On this page"]]) {
    document.getElementById(`pst-${drawer}-sidebar-modal`)?.setAttribute("aria-label", name);
  }

  // Escape closes a drawer wherever the focus is.
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.querySelector("dialog[open]")?.close();
  }, true);

  // A drawer closes when a place on this page was chosen in it, and reading goes on there.
  addEventListener("click", (event) => {
    const link = event.target.closest("dialog[open] a[href^='#']");
    if (!link) return;
    event.preventDefault();
    const drawer = link.closest("dialog");
    drawer.addEventListener("close", () => location.assign(link.href), { once: true });
    drawer.close();
  });

  // --- what is wider than the screen -----------------------------------------------------------
  // It is scrolled by keyboard too, has a name, and fades out where it goes on.
  const NAMES = {
    ".cell_output pre": "Output", pre: "Code", ".rl-figure": "Picture", ".rl-wide": "Chart",
    ".pst-scrollable-table-container": "Table", "div.math": "Formula",
    ".rl-tree": "Radix tree", ".rl-pool": "Page tables and pool",
  };
  const BOXES = Object.keys(NAMES).map((box) => `main ${box}:not(.rl-player pre, [inert] *)`).join();

  const mark = (box) => {
    const wide = box.scrollWidth > box.clientWidth + 1;
    const name = Object.entries(NAMES).find(([selector]) => box.matches(selector))[1];
    for (const [attribute, value] of [["tabindex", 0], ["role", "group"], ["aria-label", box.dataset.name ?? name]]) {
      if (wide) box.setAttribute(attribute, value);
      else box.removeAttribute(attribute);
    }
    box.classList.toggle("rl-more", wide && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  };

  const sizes = new ResizeObserver((changes) => changes.forEach(({ target }) => mark(target)));
  const look = () => document.querySelectorAll(BOXES).forEach((box) => sizes.observe(box));
  new MutationObserver(look).observe(document.querySelector("main"), { childList: true, subtree: true });
  addEventListener("scroll", ({ target }) => target.matches?.(BOXES) && mark(target), true);
  look();

  // --- words -----------------------------------------------------------------------------------
  Documentation.TRANSLATIONS["Search finished, found ${resultCount} page(s) matching the search query."] =
    "Pages found: ${resultCount}.";
}
