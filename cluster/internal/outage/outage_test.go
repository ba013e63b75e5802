package outage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/watchlist"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

// answer is a transport that answers with its code, or fails if that is 0.
type answer int

func (a *answer) RoundTrip(*http.Request) (*http.Response, error) {
	if *a == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: int(*a), Body: http.NoBody}, nil
}

func TestSignal(t *testing.T) {
	t.Parallel()
	var (
		s    Signal
		code answer
		rt   = s.Transport(&code)
	)
	ask := func(ctx context.Context, to answer, method, path string) {
		t.Helper()
		code = to
		r, err := http.NewRequestWithContext(ctx, method, "http://api"+path, http.NoBody)
		require.NoError(t, err)
		if resp, err := rt.RoundTrip(r); err == nil {
			require.NoError(t, resp.Body.Close())
		}
	}
	signals := func(during func()) (sent bool) {
		ended := s.Ended()
		during()
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	for _, bad := range []answer{0, 401, 403, 409, 410, 422, 429, 500, 503} {
		s.limit = nil
		assert.False(t, signals(func() { ask(t.Context(), bad, "PUT", "/lease") }), "%d", bad)
		assert.False(t, signals(func() { ask(t.Context(), bad, "PUT", "/lease") }), "%d again", bad)
		assert.False(t, signals(func() { ask(t.Context(), 200, "GET", "/lease") }), "another request")
		assert.True(t, signals(func() { ask(t.Context(), 200, "PUT", "/lease") }), "%d is over", bad)
		assert.False(t, signals(func() { ask(t.Context(), 200, "PUT", "/lease") }), "once")
	}
	assert.False(t, signals(func() { ask(t.Context(), 404, "GET", "/pod"); ask(t.Context(), 200, "GET", "/pod") }),
		"that something does not exist is no outage")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, signals(func() { ask(canceled, 0, "GET", "/watch"); ask(t.Context(), 200, "GET", "/watch") }),
		"given up by the client")
	s.limit = nil
	for i := range 10 * maxFailing {
		ask(t.Context(), 500, "GET", fmt.Sprint("/", i))
	}
	assert.LessOrEqual(t, len(s.failing), maxFailing)
	assert.True(t, signals(func() { ask(t.Context(), 200, "GET", fmt.Sprint("/", 10*maxFailing-1)) }))
}

// The success of a list is not the end of the failure of a watch.
func TestListsAndWatches(t *testing.T) {
	t.Parallel()
	var (
		s    Signal
		code answer
		rt   = s.Transport(&code)
	)
	ended := s.Ended()
	for range 2 {
		for query, to := range map[string]answer{"": 200, "?watch=true": 403, "?watch=1": 500} {
			code = to
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api/pods"+query, http.NoBody)
			require.NoError(t, err)
			resp, err := rt.RoundTrip(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
	}
	select {
	case <-ended:
		t.Error("sent")
	default:
	}
}

// A server that refuses every other request does not end back-offs again and again; but the end of
// each outage is noticed, after a while.
func TestSignalsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Signal
		flap := func() {
			s.failed(request{method: "GET", path: "/"})
			s.succeeded(request{method: "GET", path: "/"})
		}
		sent := 0
		ended := s.Ended()
		count := func() {
			synctest.Wait()
			select {
			case <-ended:
				sent++
				ended = s.Ended()
			default:
			}
		}
		for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(100 * time.Millisecond) {
			flap()
			count()
		}
		assert.InDelta(t, 60+burst, sent, 2)

		time.Sleep(burst * period)
		count()
		sent = 0
		for range burst {
			flap()
			count()
		}
		assert.Equal(t, burst, sent, "after a calm time they are sent at once")
		flap()
		count()
		assert.Equal(t, burst, sent)
		time.Sleep(period)
		count()
		assert.Equal(t, burst+1, sent, "none is lost")
	})
}

func TestAnswered(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		errors.New("connection reset by peer"):                                  false,
		context.DeadlineExceeded:                                                false,
		apierrors.NewTimeoutError("", 1):                                        false,
		apierrors.NewTooManyRequests("", 1):                                     false,
		apierrors.NewServiceUnavailable(""):                                     false,
		apierrors.NewInternalError(errors.New("etcdserver: request timed out")): false,
		apierrors.NewBadRequest(""):                                             true,
		apierrors.NewUnauthorized(""):                                           true,
		fmt.Errorf("while creating it: %w", apierrors.NewConflict(schema.GroupResource{}, "", nil)): true,
	} {
		assert.Equal(t, want, Answered(err), "%v", err)
	}
}

func TestClient(t *testing.T) {
	t.Parallel()
	plain := apitest.NewClientset()
	assert.Nil(t, Ended(plain))
	var s Signal
	client := s.Client(plain)
	assert.True(t, watchlist.DoesClientNotSupportWatchListSemantics(client), "a fake client")
	assert.False(t, watchlist.DoesClientNotSupportWatchListSemantics(s.Client(&kubernetes.Clientset{})))
	ended := Ended(client)
	s.failed(request{method: "GET", path: "/"})
	s.succeeded(request{method: "GET", path: "/"})
	require.NoError(t, Wait(t.Context(), time.Hour, ended))
	require.NoError(t, Wait(t.Context(), time.Millisecond, s.Ended()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Wait(ctx, time.Hour, s.Ended()), context.Canceled)
}
