package nodenet_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

// Whatever clients send, a token is one word of the header.
func FuzzBearerToken(f *testing.F) {
	f.Add("Bearer a", "b")
	f.Add(" bEARER  a b ", "Bearer c")
	f.Fuzz(func(t *testing.T, first, second string) {
		token := nodenet.BearerToken(&http.Request{Header: http.Header{"Authorization": {first, second}}})
		if token == "" {
			return
		}
		if strings.Contains(token, " ") || !strings.Contains(first, " "+token) ||
			!strings.HasPrefix(strings.ToLower(strings.TrimSpace(first)), "bearer ") {
			t.Errorf("the token of %q is %q", first, token)
		}
	})
}
