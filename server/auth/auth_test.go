package auth_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeletkit/kubeletkit/server/auth"
)

// known is an authenticator whose only credential is the name of the user in the header X-User.
type known struct{}

func (known) Authenticate(req *http.Request) (*authenticationv1.UserInfo, error) {
	switch name := req.Header.Get("X-User"); name {
	case "":
		return nil, nil
	case "nobody":
		return nil, errors.New("no such user")
	default:
		return &authenticationv1.UserInfo{Username: name, Groups: req.Header["X-Group"]}, nil
	}
}

// table is an authorizer: the verbs and subresources that are allowed to a user.
type table map[string]bool

func (a table) Authorize(_ context.Context, user *authenticationv1.UserInfo,
	what *authorizationv1.ResourceAttributes) (bool, error) {
	if user.Username == "broken" {
		return false, errors.New("the API server is away")
	}
	return a[user.Username+" "+what.Verb+" "+what.Resource+"/"+what.Subresource+" "+what.Name], nil
}

func TestGuard(t *testing.T) {
	allowed := table{
		"reader get nodes/log n1": true, "reader get nodes/proxy n2": true, "scraper get nodes/metrics n1": true, "old get nodes/proxy n1": true,
		"system:anonymous get nodes/healthz n1": true,
	}
	for _, tc := range []struct {
		method, path, user string
		anonymous          bool
		want               int
		body               string
	}{
		{"GET", "/logs/messages", "reader", false, 200, "handled"},
		{"POST", "/logs/messages", "reader", false, 403, "Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[log])\n"},
		{"HEAD", "/logs/messages", "reader", false, 403, "Forbidden (user=reader, verb=, resource=nodes, subresource(s)=[log])\n"},
		{"GET", "/pods", "reader", false, 403, "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"},
		{"GET", "/exec/a/b/c", "reader", false, 403, "Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])\n"},
		{"GET", "/metrics", "scraper", false, 200, "handled"},
		{"GET", "/pods", "old", false, 200, "handled"}, // proxy is enough, as before KEP-2862
		{"GET", "/metrics", "old", false, 403, "Forbidden (user=old, verb=get, resource=nodes, subresource(s)=[metrics])\n"},
		{"GET", "/healthz", "", false, 401, "Unauthorized\n"},
		{"GET", "/healthz", "", true, 200, "handled"},
		{"GET", "/pods", "", true, 403, "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"},
		{"GET", "/healthz", "nobody", true, 401, "Unauthorized\n"}, // not anonymous
		{"GET", "/stats", "broken", false, 500, "Authorization error (user=broken, verb=get, resource=nodes, subresource=stats)\n"},
	} {
		t.Run(tc.user+" "+tc.method+" "+tc.path, func(t *testing.T) {
			guard, err := auth.New(auth.Options{NodeName: "n1", Authenticators: []auth.Authenticator{known{}},
				Anonymous: tc.anonymous, Authorizer: allowed})
			require.NoError(t, err)
			reached := false
			h := guard.Protect(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				reached = true
				assert.Empty(t, req.Header.Get("Authorization"))
				_, _ = w.Write([]byte("handled"))
			}))
			req := httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, nil)
			req.Header.Set("Authorization", "Bearer secret")
			if tc.user != "" {
				req.Header.Set("X-User", tc.user)
			}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, req)
			assert.Equal(t, tc.want, rec.Code)
			assert.Equal(t, tc.body, rec.Body.String())
			assert.Equal(t, tc.want == 200, reached)
		})
	}
}

func TestOptionsOfGuard(t *testing.T) {
	_, err := auth.New(auth.Options{})
	require.ErrorContains(t, err, "NodeName")
	require.ErrorContains(t, err, "Authorizer")
}

// All users but the anonymous one are in the group system:authenticated.
func TestGroups(t *testing.T) {
	var seen authenticationv1.UserInfo
	guard, err := auth.New(auth.Options{NodeName: "n1", Authenticators: []auth.Authenticator{known{}}, Anonymous: true,
		Authorizer: authorizerFunc(func(u *authenticationv1.UserInfo) { seen = *u })})
	require.NoError(t, err)
	ask := func(header http.Header) authenticationv1.UserInfo {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods", nil)
		req.Header = header
		guard.Protect(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), req)
		return seen
	}
	assert.Equal(t, []string{"a", auth.AllAuthenticated}, ask(http.Header{"X-User": {"one"}, "X-Group": {"a"}}).Groups)
	assert.Equal(t, authenticationv1.UserInfo{Username: auth.Anonymous, Groups: []string{auth.AllUnauthenticated}},
		ask(http.Header{}))
}

type authorizerFunc func(*authenticationv1.UserInfo)

func (f authorizerFunc) Authorize(_ context.Context, user *authenticationv1.UserInfo,
	_ *authorizationv1.ResourceAttributes) (bool, error) {
	f(user)
	return false, nil
}

func TestSystemMasters(t *testing.T) {
	for _, group := range []string{auth.Masters, "others"} {
		ok, err := auth.SystemMasters{}.Authorize(t.Context(), &authenticationv1.UserInfo{Groups: []string{group}}, nil)
		require.NoError(t, err)
		assert.Equal(t, group == auth.Masters, ok)
	}
}
