// Lists the operations of openapi.json by tag. Texts are set as text, never as markup.
"use strict";

function element(parent, tag, text, className) {
  const made = parent.appendChild(document.createElement(tag));
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function resolved(schema, document_) {
  const reference = schema && schema.$ref;
  if (!reference) return schema;
  return reference.slice(2).split("/").reduce((node, name) => node[name], document_);
}

function showSchema(parent, title, schema, document_) {
  element(parent, "p", title);
  element(parent, "pre", JSON.stringify(resolved(schema, document_), null, 2));
}

function showOperation(parent, method, path, operation, document_) {
  const details = element(parent, "details");
  const summary = element(details, "summary");
  element(summary, "code", method.toUpperCase(), "method");
  element(summary, "code", path);
  element(summary, "span", "  " + operation.summary, "note");
  if (operation.description) element(details, "p", operation.description);
  for (const parameter of operation.parameters || []) {
    const named = resolved(parameter, document_);
    element(details, "p", `${named.name} (${named.in}): ${named.description}`);
  }
  for (const [type, body] of Object.entries((operation.requestBody || {}).content || {})) {
    showSchema(details, "Body, " + type, body.schema, document_);
  }
  for (const [status, given] of Object.entries(operation.responses)) {
    const response = resolved(given, document_);
    element(details, "p", `${status}: ${response.description}`);
    for (const body of Object.values(response.content || {})) {
      if (status < 300) showSchema(details, "Answer", body.schema, document_);
    }
  }
}

async function show() {
  const main = document.querySelector("main");
  const document_ = await (await fetch("/docs/openapi.json")).json();
  main.textContent = document_.info.description;
  for (const tag of document_.tags) {
    element(main, "h2", tag.name);
    element(main, "p", tag.description);
    for (const [path, methods] of Object.entries(document_.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (operation.tags[0] === tag.name) showOperation(main, method, path, operation, document_);
      }
    }
  }
}

show();
