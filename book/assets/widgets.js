// The widgets' scripts, megabytes of them: in this order, and the page doesn't wait for them.
// Modules that they ask for (anywidget) lie beside them.
{
  const vendor = new URL("vendor/", document.currentScript.src);
  window.require = { baseUrl: vendor.pathname };
  for (const name of ["require.js", "embed-amd.js"]) {
    const script = document.createElement("script");
    script.src = new URL(name, vendor);
    script.async = false;
    script.dataset.jupyterWidgetsCdn = "vendor/";
    document.head.append(script);
  }
}
