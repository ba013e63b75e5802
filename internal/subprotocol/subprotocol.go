// Package subprotocol has the protocols of exec, attach and port-forward, and finds out which of them
// a client of a WebSocket offers.
package subprotocol

import (
	"net/http"
	"slices"
	"strings"
)

// The protocols of exec and attach. In version 4 the exit code is in a JSON Status on the error
// stream; version 5, which only WebSocket has, adds the end of stdin.
const (
	V4 = "v4.channel.k8s.io"
	V5 = "v5.channel.k8s.io"
)

// The protocol of port-forward over SPDY, and over SPDY in a WebSocket.
const (
	Forward = "portforward.k8s.io"
	Tunnel  = "SPDY/3.1+" + Forward
)

// Header is the header of the protocols of a WebSocket.
const Header = "Sec-Websocket-Protocol"

// Offered returns the protocols that a client offers.
func Offered(header http.Header) (protocols []string) {
	for _, list := range header.Values(Header) {
		for protocol := range strings.SplitSeq(list, ",") {
			protocols = append(protocols, strings.TrimSpace(protocol))
		}
	}
	return protocols
}

// IsOffered reports whether a request is for a WebSocket and offers the protocol. What is such a
// request is decided as in IsWebSocketRequest of k8s.io/streaming.
func IsOffered(req *http.Request, protocol string) bool {
	isUpgrade := func(connection string) bool { return strings.Contains(strings.ToLower(connection), "upgrade") }
	return strings.EqualFold(req.Header.Get("Upgrade"), "websocket") &&
		slices.ContainsFunc(req.Header.Values("Connection"), isUpgrade) &&
		slices.Contains(Offered(req.Header), protocol)
}
