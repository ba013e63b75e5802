// Package bearer reads bearer tokens from requests.
package bearer

import (
	"net/http"
	"strings"
)

// Token returns the bearer token of a request, "" if there is none. As in kubelet, it ends at the
// first space.
func Token(req *http.Request) string {
	parts := strings.Split(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	if len(parts) < 2 || !strings.EqualFold(parts[0], "bearer") {
		return ""
	}
	return parts[1]
}
