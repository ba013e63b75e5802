// Package ui serves a page about the pods of a running agent to a browser on the same machine.
//
// # Vocabulary
//
//   - The agent is reached by its socket, as by the other commands (package control).
//   - The token is a secret that is made at each start. It is in the fragment of the address that
//     the command prints, so no browser sends it in a URL. The page sends it in the header
//     Authorization of each request for data, and as a subprotocol of a session. A tab without the token asks
//     the other tabs of the page, which are of the same origin, and then the person.
//
// # Guarantees
//
//   - It answers GET and HEAD only and changes nothing in the agent, but for restarts of containers and sessions
//     in them if they are allowed, and reads nothing else from the socket than the node, images, pods, usage,
//     histories, events, logs and manifests that cannot be used.
//   - It answers only connections from the loopback interface whose Host is a name of it, so a name
//     of somebody else's that resolves to 127.0.0.1 is refused.
//   - Without the token it serves the page, which has no data, and nothing else.
//   - The browser loads nothing from elsewhere and runs no script but those of the page; the
//     Content-Security-Policy says so. What pods write is inserted as text.
//   - It holds no state. If no page is open, it requests nothing from the agent.
package ui
