package redirects

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRefuse(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		t.Error("a request to another host")
	}))
	defer other.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		srv := httptest.NewServer(http.RedirectHandler(other.URL, code))
		rt := &http.Transport{}
		resp, err := (&http.Client{Transport: Refuse(rt)}).Get(srv.URL)
		require.NoError(t, err)
		assert.Equal(t, code, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		rt.CloseIdleConnections()
		srv.Close()
	}
}
