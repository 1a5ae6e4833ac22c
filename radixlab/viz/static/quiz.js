// What `details` can't do by itself: arrow keys from answer to answer, and words for screen readers.
if (!window.radixlabQuiz) {
  window.radixlabQuiz = true;
  document.addEventListener("toggle", ({ target }) => {
    const asked = target.closest(".rl-quiz fieldset");
    if (!asked) return;
    const open = asked.querySelector("details[open]");
    const words = open ? `${open.className}: ${open.querySelector("p").textContent}` : "";
    const status = asked.querySelector("[role=status]");
    if (status.textContent !== words) status.textContent = words;
  }, true);
  document.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!event.target.matches(".rl-quiz summary")) return;
    const answers = [...event.target.closest("fieldset").querySelectorAll("summary")];
    event.preventDefault(); // the page stays where it is
    answers.at((answers.indexOf(event.target) + step) % answers.length).focus();
  });
}
