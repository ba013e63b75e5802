package ui

import (
	"context"
	"fmt"
	"io"
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
		pod, goneAt, err := h.find(req)
		if err == nil && goneAt != nil {
			err = errNoPod
		}
		if err != nil {
			return err
		}
		names, _, err := client.RestartOf(pod, req.FormValue("container"))
		if err != nil {
			return err
		}
		by := "the page, user " + peerOf(req.RemoteAddr)
		_, _ = fmt.Fprintf(audit, "%s restart of %q in pod %s/%s by %s from %s\n", h.now().Format(time.RFC3339), names,
			pod.Namespace, pod.Name, by, req.RemoteAddr)
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

// peerOf returns the user of this machine whose process has the other end of a connection; with a forwarded port that
// is the one of the SSH session.
func peerOf(remote string) string {
	addr, err := netip.ParseAddrPort(remote)
	if table, readErr := os.ReadFile("/proc/net/tcp"); err == nil && readErr == nil {
		if uid, ok := ownerOf(string(table), addr); ok {
			return client.UserName(uid)
		}
	}
	return "unknown"
}

// ownerOf returns the user of the socket with the local address in the table of /proc/net/tcp, whose addresses are
// words of the machine's byte order; those of loopback addresses of IPv4 are searched.
func ownerOf(table string, addr netip.AddrPort) (uid int, ok bool) {
	ip := addr.Addr().Unmap()
	if !ip.Is4() {
		return 0, false
	}
	b := ip.As4()
	port := fmt.Sprintf(":%04X", addr.Port())
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 8 || f[1] != fmt.Sprintf("%02X%02X%02X%02X", b[3], b[2], b[1], b[0])+port &&
			f[1] != fmt.Sprintf("%02X%02X%02X%02X", b[0], b[1], b[2], b[3])+port {
			continue
		}
		uid, err := strconv.Atoi(f[7])
		return uid, err == nil
	}
	return 0, false
}
