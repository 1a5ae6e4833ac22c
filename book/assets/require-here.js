// Modules that the widgets ask for (anywidget) lie in vendor/, beside this script.
requirejs.config({ baseUrl: new URL("vendor", document.currentScript.src).pathname });
