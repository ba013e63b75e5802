package bearer_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/bearer"
)

func TestToken(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Bearer a": "a", "bEARER a": "a", " Bearer a ": "a", "Bearer a b": "a", "Bearer a  b": "a",
		"": "", "Bearer": "", "Bearer ": "", "Bearer  a": "", "Basic a": "", "Bearera": "", "a Bearer b": "",
	} {
		req := &http.Request{Header: http.Header{"Authorization": {header}}}
		assert.Equal(t, want, bearer.Token(req), "%q", header)
	}
	assert.Empty(t, bearer.Token(&http.Request{}))
	twice := &http.Request{Header: http.Header{"Authorization": {"Bearer a", "Bearer b"}}}
	assert.Equal(t, "a", bearer.Token(twice), "the first header, as in kubelet")
}
