package nodenet

import (
	"net/http"
	"strings"
)

// BearerToken returns the bearer token of a request, "" if there is none. As in kubelet, it ends at the
// first space.
func BearerToken(req *http.Request) string {
	parts := strings.Split(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	if len(parts) < 2 || !strings.EqualFold(parts[0], "bearer") {
		return ""
	}
	return parts[1]
}
