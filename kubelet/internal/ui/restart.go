package ui

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
)

// allowRestart has the page restart containers. Each restart is a line of the audit log, and in the log of the agent
// and the history of the pod.
func (h *handler) allowRestart(audit io.Writer) {
	h.restarts = true
	h.data("POST", "/api/pods/{uid}/restart", func(w http.ResponseWriter, req *http.Request) error {
		pod, err := h.findHere(req)
		if err != nil {
			return err
		}
		names, _, err := client.RestartOf(pod, req.FormValue("container"))
		if err != nil {
			return err
		}
		by := "the page, user " + peerOf(req)
		h.note(audit, "restart of %q in pod %s/%s by %s from %s", names, pod.Namespace, pod.Name, by, req.RemoteAddr)
		query := url.Values{"container": names, "by": {by}}
		// Containers that are being stopped are not left half-way when the browser goes away.
		resp, err := h.agent.Do(context.WithoutCancel(req.Context()), http.MethodPost,
			control.RestartPath+url.PathEscape(string(pod.UID)), query)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// note writes a line of the audit log.
func (h *handler) note(audit io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(audit, h.now().Format(time.RFC3339)+" "+format+"\n", args...)
}

// peerOf returns the user of this machine whose process has the other end of the connection of a request; with a
// forwarded port that is the one of the SSH session.
func peerOf(req *http.Request) string {
	peer, err := netip.ParseAddrPort(req.RemoteAddr)
	own, ok := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if err != nil || !ok {
		return "unknown"
	}
	here, err := netip.ParseAddrPort(own.String())
	table, readErr := os.ReadFile("/proc/net/tcp")
	if err := cmp.Or(err, readErr); err != nil {
		return "unknown"
	}
	if uid, ok := ownerOf(string(table), peer, here); ok {
		return client.UserName(uid)
	}
	return "unknown"
}

// ownerOf returns the user of the socket that is connected from one address to another, in the table of /proc/net/tcp.
func ownerOf(table string, from, to netip.AddrPort) (uid int, ok bool) {
	const established = "01"
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 8 || f[3] != established || !isAddress(f[1], from) || !isAddress(f[2], to) {
			continue
		}
		uid, err := strconv.Atoi(f[7])
		return uid, err == nil
	}
	return 0, false
}

// isAddress reports whether a text of /proc/net/tcp is the address, whose words are in the machine's byte order there.
func isAddress(text string, addr netip.AddrPort) bool {
	ip := addr.Addr().Unmap()
	if !ip.Is4() {
		return false
	}
	b := ip.As4()
	port := fmt.Sprintf(":%04X", addr.Port())
	return text == fmt.Sprintf("%02X%02X%02X%02X", b[3], b[2], b[1], b[0])+port ||
		text == fmt.Sprintf("%02X%02X%02X%02X", b[0], b[1], b[2], b[3])+port
}
