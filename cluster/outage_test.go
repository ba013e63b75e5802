package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/cluster/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// fault is a way in which the API server fails.
type fault struct {
	name   string
	before func(*apitest.Request) (*http.Response, error)
	// silent: requests are accepted and not answered until the connections break at the end.
	silent bool
	// stale: the watch of pods delivers each pod again as it was at first, once a minute.
	stale bool
}

// answers is the fault that requests are answered with a status.
func answers(code int32, reason metav1.StatusReason, which func(*apitest.Request) bool) fault {
	return fault{name: fmt.Sprint(code), before: func(r *apitest.Request) (*http.Response, error) {
		if !which(r) {
			return nil, nil
		}
		return apitest.Response(nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "an outage"}}), nil
	}}
}

func all(*apitest.Request) bool { return true }

func writes(r *apitest.Request) bool { return !reads(r) }

func reads(r *apitest.Request) bool {
	return r.Verb == "get" || r.Verb == "list" || r.Verb == "watch"
}

func podStatuses(r *apitest.Request) bool { return r.Resource == "pods" && r.Subresource == "status" }

// After an outage of ten minutes the API server shows the truth within 5 seconds, whatever it
// answered meanwhile.
func TestTruthAfterAnOutage(t *testing.T) {
	for _, o := range []fault{
		{name: "refused", before: func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") }},
		answers(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, all),
		answers(http.StatusForbidden, metav1.StatusReasonForbidden, all),
		answers(http.StatusConflict, metav1.StatusReasonConflict, writes),
		answers(http.StatusGone, metav1.StatusReasonExpired, reads),
		answers(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, podStatuses),
		answers(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, all),
		answers(http.StatusInternalServerError, metav1.StatusReasonInternalError, all),
		answers(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, all),
		answers(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, all),
		{name: "silent", silent: true},
		{name: "old objects", stale: true},
	} {
		t.Run(o.name, func(t *testing.T) { onNode(t, func(r *rig) { testOutage(r, o) }) })
	}
}

func testOutage(r *rig, o fault) {
	r.api.Put("secrets", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Data: map[string][]byte{"key": []byte("value")}})
	const pods = 10
	var first []*v1.Pod
	for i := range pods {
		for _, what := range []string{"finishes", "deleted", "stays"} {
			pod := bound(fmt.Sprintf("%s-%d", what, i))
			if what == "finishes" {
				pod.Spec.RestartPolicy = v1.RestartPolicyNever
			}
			first = append(first, r.api.Create(pod))
		}
	}
	first = append(first, r.api.Create(bound("crashes")))
	r.after(time.Minute)
	broken := make(chan struct{})
	r.api.Before(o.before)
	if o.silent {
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			select {
			case <-req.HTTP.Context().Done():
				return nil, req.HTTP.Context().Err()
			case <-broken:
				return nil, errors.New("connection reset by peer")
			}
		})
	}
	r.api.BreakWatches()
	for i := range pods {
		r.rt.Exit(fake.Target{Pod: fmt.Sprintf("finishes-%d", i)}, int32(10+i))
		r.api.Delete("default", fmt.Sprintf("deleted-%d", i), nil)
		pod := bound(fmt.Sprintf("created-%d", i))
		pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "db"}, Key: "key"}}}}
		r.api.Create(pod)
	}
	deliverFirst := func() {
		for _, pod := range first {
			r.api.Event("MODIFIED", pod)
		}
	}
	crashes := 0
	for minute := range 10 {
		crashes += r.rt.Exit(fake.Target{Pod: "crashes"}, 1) // 0 in a back-off
		r.after(time.Minute)
		if o.stale {
			deliverFirst()
		}
		if minute == 0 {
			r.requests()
		}
	}
	requests := r.api.Requests() // but watches
	r.api.Before(nil)
	close(broken)
	back := time.Now()
	if o.stale {
		deliverFirst()
		r.after(time.Second)
	}
	truth := func() (errs []error) {
		for i := range pods {
			if p := r.api.Get("default", fmt.Sprintf("finishes-%d", i)); p.Status.Phase != v1.PodFailed {
				errs = append(errs, fmt.Errorf("%s is %s", p.Name, p.Status.Phase))
			}
			if p := r.api.Get("default", fmt.Sprintf("deleted-%d", i)); p != nil {
				errs = append(errs, fmt.Errorf("%s is %s", p.Name, p.Status.Phase))
			}
			if p := r.api.Get("default", fmt.Sprintf("created-%d", i)); p.Status.Phase != v1.PodRunning {
				errs = append(errs, fmt.Errorf("%s is %s", p.Name, p.Status.Phase))
			}
		}
		restarts := crashes
		if len(r.rt.Running(fake.Target{Pod: "crashes"})) == 0 {
			restarts-- // a back-off follows the last crash
		}
		if p := r.api.Get("default", "crashes"); int(p.Status.ContainerStatuses[0].RestartCount) != restarts {
			errs = append(errs, fmt.Errorf("crashes has %d restarts instead of %d", p.Status.ContainerStatuses[0].RestartCount, restarts))
		}
		return errs
	}
	took := map[string]time.Duration{}
	for {
		errs := truth()
		if len(errs) == 0 || time.Since(back) > time.Minute {
			require.NoError(r, errors.Join(errs...))
			break
		}
		for _, err := range errs {
			what, _, _ := strings.Cut(strings.Fields(err.Error())[0], "-")
			took[what] = time.Since(back)
		}
		r.after(50 * time.Millisecond)
	}
	r.Logf("the truth is there after %v %v; %.2f requests a second before: %v", time.Since(back), took, float64(len(requests))/540, byKind(requests))
	assert.LessOrEqual(r, time.Since(back), 5*time.Second)
	assert.Less(r, float64(len(requests))/540, 2.0, "requests a second, so that many nodes leave a server alone that comes back")
	assert.Greater(r, crashes, 2, "the pod crashed during the outage, and again after its restarts")
	for i := range pods {
		assert.Empty(r, r.rt.Running(fake.Target{Pod: fmt.Sprintf("deleted-%d", i)}))
		assert.Zero(r, r.api.Get("default", fmt.Sprintf("stays-%d", i)).Status.ContainerStatuses[0].RestartCount)
	}
}
