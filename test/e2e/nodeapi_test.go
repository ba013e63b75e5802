package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// badTime is a time in which the API server is bad to the node.
type badTime struct {
	name       string
	begin, end func(p *Proxy)
	// requests are the most that the node may make in the 4 seconds. Default 150.
	requests int
}

// answering is a time in which the proxy answers some requests itself. Existing connections are
// closed at its beginning.
func answering(code int32, reason metav1.StatusReason, which func(*http.Request) bool) badTime {
	return badTime{
		name: fmt.Sprint(code),
		begin: func(p *Proxy) {
			p.Answer(func(r *http.Request) *metav1.Status {
				if !which(r) {
					return nil
				}
				status := &metav1.Status{Code: code, Reason: reason, Message: "a fault of the test"}
				if code == http.StatusTooManyRequests {
					status.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
				}
				return status
			})
			p.Disconnect()
		},
		end: func(p *Proxy) { p.Answer(nil) },
	}
}

func everything(*http.Request) bool { return true }

func writing(r *http.Request) bool { return r.Method != http.MethodGet }

func reading(r *http.Request) bool { return r.Method == http.MethodGet }

func status422(r *http.Request) bool {
	return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status") &&
		strings.Contains(r.URL.Path, "/pods/")
}

// In TestBadAPIServer, the API server of a node answers wrong, or not at all, for a while. Meanwhile
// pods end, are deleted and created. Afterwards the API shows their true state, and nothing was
// restarted or removed because of the answers. How soon is asserted in virtual time, by
// TestTruthAfterAnOutage of package cluster.
func TestBadAPIServer(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	s := &nodeSuite{Cluster: c, plane: NewControlPlane(t, c.Net)}
	c.Preload(t, "pause:1", "busybox:1")
	proxy := s.plane.NewProxy(t, NodeName)
	s.agent = c.NewAgent(t, AgentOptions{Kubeconfig: proxy.Kubeconfig})
	s.start(t)
	ns := s.plane.Namespace(t, "bad")
	s.plane.Kubectl(t, "create", "-n", ns, "secret", "generic", "db", "--from-literal=password="+secretValue)
	times := []badTime{
		answering(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, everything),
		answering(http.StatusForbidden, metav1.StatusReasonForbidden, everything),
		answering(http.StatusConflict, metav1.StatusReasonConflict, writing),
		answering(http.StatusGone, metav1.StatusReasonExpired, reading),
		answering(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, status422),
		answering(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, everything),
		answering(http.StatusInternalServerError, metav1.StatusReasonInternalError, everything),
		answering(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, everything),
		{name: "old objects", begin: func(p *Proxy) { t.Logf("%d old events", p.Replay()) }, end: func(p *Proxy) { p.Replay() }},
		{name: "no answer", begin: func(p *Proxy) { p.Hang(true) }, end: func(p *Proxy) { p.Hang(false) }},
		{name: "half-open", begin: (*Proxy).HalfOpen, end: func(*Proxy) {}},
	}
	stays := readyNow("c")
	stays.Env = []v1.EnvVar{{Name: "PASSWORD",
		ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{
			Name: "db"}, Key: "password"}}}}
	crashes := Sh("c", "while [ ! -e /end ]; do sleep 0.1; done; rm /end; exit 3")
	all := []*v1.Pod{MakePod("stays", Main(stays)), MakePod("crashes", Main(crashes))}
	for i := range times {
		all = append(all,
			MakePod(fmt.Sprint("finishes-", i), Policy(v1.RestartPolicyNever),
				Main(Sh("c", fmt.Sprintf("while [ ! -e /end ]; do sleep 0.1; done; exit %d", 10+i)))),
			MakePod(fmt.Sprint("deleted-", i), Main(Sh("c", Forever))))
	}
	s.create(t, ns, all...)
	before := map[string]*v1.Pod{}
	for _, pod := range all {
		before[pod.Name] = s.await(t, ns, pod.Name, Running)
	}
	before["stays"] = s.await(t, ns, "stays", Running, Ready(true))
	flaps := s.watchReadiness(t, ns)
	for i, bad := range times {
		if !t.Run(strings.ReplaceAll(bad.name, " ", "-"),
			func(t *testing.T) { s.testBadTime(t, ns, proxy, bad, i, before) }) {
			break
		}
	}
	for _, flap := range flaps() {
		if strings.HasPrefix(flap, "stays:") {
			t.Errorf("became unready: %s", flap)
		}
	}
	t.Run("edited", func(t *testing.T) { s.testForbiddenEdits(t, ns) })
	t.Run("skew", func(t *testing.T) { s.testSkew(t) })
	t.Run("node-deleted", func(t *testing.T) { s.testNodeDeleted(t, ns, before["stays"]) })
	s.noSecretsInEvents(t, ns)
	s.noSecretsInLog(t)
}

func (s *nodeSuite) testBadTime(t *testing.T, ns string, proxy *Proxy, bad badTime, i int, before map[string]*v1.Pod) {
	finishes, deleted, created := fmt.Sprint("finishes-", i), fmt.Sprint("deleted-", i), fmt.Sprint("created-", i)
	pods := s.plane.Client.CoreV1().Pods(ns)
	s.await(t, ns, "crashes", Running)
	began, faults := proxy.Requests(), proxy.Faults()
	bad.begin(proxy)
	end := sync.OnceFunc(func() { bad.end(proxy) })
	t.Cleanup(end)
	s.End(t, finishes, "c")
	s.End(t, "crashes", "c")
	grace := metav1.DeleteOptions{}
	if i%2 == 1 { // by force
		grace.GracePeriodSeconds = new(int64)
	}
	require.NoError(t, pods.Delete(t.Context(), deleted, grace))
	pod := MakePod(created, Main(Sh("c", Forever)))
	pod.Namespace, pod.Spec.NodeName = ns, NodeName
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	time.Sleep(4 * time.Second)
	requests := proxy.Requests() - began
	Eventually(t, within, "the node notices", func() error {
		if n := proxy.Faults() - faults; n == 0 {
			return errors.New("no request of it was answered wrong")
		}
		return nil
	})
	assert.False(t, s.agent.Exited())
	Eventually(t, within, "the container has ended", func() error { return s.noRunning(t, finishes) })
	end()
	back := time.Now()
	if bad.requests == 0 {
		bad.requests = 150
	}
	s.plane.AwaitPod(t, ns, finishes, eventually, Phase(v1.PodFailed), Terminated("c", int32(10+i)))
	s.plane.AwaitPod(t, ns, "crashes", eventually, Running, Restarts("c", int32(i+1)))
	Eventually(t, eventually, "the deleted pod is gone", func() error {
		return errors.Join(s.plane.NoPod(ns, deleted), s.noContainers(t, deleted))
	})
	known := time.Since(back)
	now := s.plane.AwaitPod(t, ns, created, eventually, Running)
	t.Logf("%d requests; after %v the API knows what has ended, after %v the new pod runs", requests,
		known, time.Since(back))
	assert.LessOrEqual(t, requests, bad.requests)
	adopted(t, before["stays"], s.await(t, ns, "stays", Running))
	for _, name := range []string{finishes, created} {
		require.NoError(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	s.awaitGone(t, ns, finishes, created)
	s.awaitGone(t, ns, deleted)
	s.awaitNothingLeft(t, now)
}

// awaitNothingLeft waits until the machine has nothing of a pod that is gone.
func (s *nodeSuite) awaitNothingLeft(t *testing.T, pod *v1.Pod) {
	t.Helper()
	Eventually(t, eventually, "nothing left of pod "+pod.Name,
		func() error { return s.agent.LeftOf(s.Cluster, string(pod.UID)) })
}

// Objects that the API forbids, such as from a database that was edited by hand: the node runs the
// pods of these objects, and the other pods continue to run.
func (s *nodeSuite) testForbiddenEdits(t *testing.T, ns string) {
	s.create(t, ns, MakePod("edited", Main(Sh("a", Forever), Sh("b", Forever))),
		MakePod("undeleted", Grace(60), Main(Sh("c", Stubborn))), MakePod("moved", Main(Sh("c", Forever))))
	was := s.await(t, ns, "edited", Running)
	s.await(t, ns, "undeleted", Running)
	moved := s.await(t, ns, "moved", Running)
	s.plane.EditPod(t, ns, "edited", func(pod *v1.Pod) {
		pod.Spec.Containers[1].Name = "renamed"
		pod.Spec.Containers = append(pod.Spec.Containers, Sh("d", Forever))
		pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
		pod.Generation++
	})
	now := s.await(t, ns, "edited", Running)
	assert.Equal(t, Status(was, "a").ContainerID, Status(now, "a").ContainerID, "what was not edited runs on")
	assert.NotEqual(t, Status(was, "b").ContainerID, Status(now, "renamed").ContainerID)
	Eventually(t, eventually, "the container without a name in the spec has ended", func() error {
		if n := s.runs(t, "edited"); n != 3 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	s.plane.EditPod(t, ns, "edited", func(pod *v1.Pod) {
		pod.Spec.Containers = pod.Spec.Containers[:1]
		pod.Status.Phase = v1.PodPending
		pod.Spec.Containers[0].Image = "" // nothing can run this
	})
	// Its end is possible nonetheless.
	require.NoError(t, s.plane.Client.CoreV1().Pods(ns).Delete(t.Context(), "edited", metav1.DeleteOptions{}))
	s.awaitGone(t, ns, "edited")

	// A deletion is not taken back: the containers have been stopped. The agent has to have seen it: of two changes in a
	// row, it may get the second one only.
	require.NoError(t, s.plane.Client.CoreV1().Pods(ns).Delete(t.Context(),
		"undeleted", metav1.DeleteOptions{GracePeriodSeconds: new(int64(3))}))
	s.awaitEvent(t, ns, "undeleted", "Killing")
	s.plane.EditPod(t, ns,
		"undeleted", func(pod *v1.Pod) { pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil })
	Eventually(t, eventually, "it has ended", func() error { return s.noRunning(t, "undeleted") })
	require.NoError(t, s.plane.Client.CoreV1().Pods(ns).Delete(t.Context(), "undeleted", metav1.DeleteOptions{}))
	s.awaitGone(t, ns, "undeleted")

	// A pod that is another node's now ends here.
	s.plane.EditPod(t, ns, "moved", func(pod *v1.Pod) { pod.Spec.NodeName = "elsewhere" })
	Eventually(t, eventually, "it has ended here", func() error { return s.noContainers(t, "moved") })
	s.awaitNothingLeft(t, moved)
	assert.False(t, s.agent.Exited())
}

// A lease that was renewed by the clock of another time does not keep the agent from its node.
func (s *nodeSuite) testSkew(t *testing.T) {
	leases := s.plane.Client.CoordinationV1().Leases("kube-node-lease")
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		s.agent.Kill(t)
		lease, err := leases.Get(t.Context(), NodeName, metav1.GetOptions{})
		require.NoError(t, err)
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(skew)}
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(t, err)
		s.agent.Start(t)
		Eventually(t, eventually, "the lease is renewed", func() error {
			lease, err := leases.Get(context.Background(), NodeName, metav1.GetOptions{})
			if err == nil && time.Since(lease.Spec.RenewTime.Time).Abs() > time.Minute {
				err = fmt.Errorf("renewed at %v", lease.Spec.RenewTime)
			}
			return err
		})
	}
	s.awaitNode(t, nodeReady)
}

// A node object that was deleted is not created again before the agent is restarted, and its
// pods run on.
func (s *nodeSuite) testNodeDeleted(t *testing.T, ns string, stays *v1.Pod) {
	before := s.awaitNode(t, nodeReady)
	s.plane.Kubectl(t, "delete", "node", NodeName)
	time.Sleep(12 * time.Second) // longer than the period of leases and statuses
	_, err := s.node()
	assert.ErrorContains(t, err, "not found")
	assert.False(t, s.agent.Exited())
	assert.Equal(t, 1, s.runs(t, "stays"))
	lines, err := s.agent.AnyOf("The node object was deleted")
	require.NoError(t, err)
	assert.NotEmpty(t, lines)
	s.agent.Kill(t)
	s.start(t)
	assert.NotEqual(t, before.UID, s.awaitNode(t, nodeReady).UID)
	adopted(t, stays, s.await(t, ns, "stays", Running))
}
