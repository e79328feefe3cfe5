// Optional script: a button that opens or folds all details of a section.
document.documentElement.classList.add("scripted");
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-expand]");
  if (!button) return;
  const folds = [...button.closest("section").querySelectorAll("details")], open = folds.some((fold) => !fold.open);
  for (const fold of folds) fold.open = open;
  button.textContent = open ? "Fold all" : "Expand all";
});
