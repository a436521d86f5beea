// Folds the groups of the navigation, but for the one with the current page.
document.addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll(".sidebar-tree .caption")) {
    const pages = caption.nextElementSibling;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = caption.textContent;
    const show = (isOpen) => {
      pages.hidden = !isOpen;
      button.setAttribute("aria-expanded", String(isOpen));
    };
    button.onclick = () => show(pages.hidden);
    show(pages.querySelector(".current") !== null || caption.textContent === "Start");
    caption.replaceChildren(button);
  }
});
