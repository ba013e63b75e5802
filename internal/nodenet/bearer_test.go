package nodenet_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

func TestBearerToken(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Bearer a": "a", "bEARER a": "a", " Bearer a ": "a", "Bearer a b": "a", "Bearer a  b": "a",
		"": "", "Bearer": "", "Bearer ": "", "Bearer  a": "", "Basic a": "", "Bearera": "", "a Bearer b": "",
	} {
		req := &http.Request{Header: http.Header{"Authorization": {header}}}
		assert.Equal(t, want, nodenet.BearerToken(req), "%q", header)
	}
	assert.Empty(t, nodenet.BearerToken(&http.Request{}))
	twice := &http.Request{Header: http.Header{"Authorization": {"Bearer a", "Bearer b"}}}
	assert.Equal(t, "a", nodenet.BearerToken(twice), "the first header, as in kubelet")
}
