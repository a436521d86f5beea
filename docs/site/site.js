// Folds the groups of the navigation, except the one with the current page or else the first.
document.addEventListener("DOMContentLoaded", () => {
  const captions = [...document.querySelectorAll(".sidebar-tree .caption")];
  const holdsPage = (caption) => caption.nextElementSibling.querySelector(".current") !== null;
  const open = captions.find(holdsPage) ?? captions[0];
  for (const caption of captions) {
    const pages = caption.nextElementSibling;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = caption.textContent;
    const show = (isOpen) => {
      pages.hidden = !isOpen;
      button.setAttribute("aria-expanded", String(isOpen));
    };
    button.onclick = () => show(pages.hidden);
    show(caption === open);
    caption.replaceChildren(button);
  }
});
