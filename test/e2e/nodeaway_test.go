package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// truthWithin is how long it may take until an API server that is back shows the truth. On a
// machine that is not busy it takes less than 5 s. Package cluster asserts that in virtual time, in
// TestTruthAfterAnOutage and TestTruthAfterARebootDuringAnOutage.
const truthWithin = 90 * time.Second

// awaitTruth waits until there is no difference between the API and the node, and asserts that it
// was soon enough after the API server was back.
func awaitTruth(t *testing.T, back time.Time, difference func() error) {
	t.Helper()
	Eventually(t, eventually, "the API shows the truth", difference)
	took := time.Since(back)
	t.Logf("the truth is there %v after the API server is back", took)
	assert.Less(t, took, truthWithin)
}

// shows is an error unless the pod in the API fulfils the conditions.
func (s *nodeSuite) shows(t *testing.T, namespace, name string, conditions ...Condition) error {
	pod, err := s.plane.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	for _, condition := range conditions {
		if err == nil {
			err = condition(pod)
		}
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", name, err)
	}
	return nil
}

// showsNewest is met by the status of the newest instance of the container c, which runs. That is read
// from the runtime, too: until its first sync after a reboot, a pod has the status that the API server
// had of it before.
func (s *nodeSuite) showsNewest(t *testing.T) Condition {
	return func(pod *v1.Pod) error {
		newest, shown := s.Newest(t, pod.Name, "c"), Status(pod, "c")
		if newest.State != cri.ContainerState_CONTAINER_RUNNING || shown.State.Running == nil ||
			shown.ContainerID != "containerd://"+newest.Id || shown.RestartCount != int32(newest.Metadata.Attempt) {
			return fmt.Errorf("not the status of %s, attempt %d, %v: %+v", newest.Id, newest.Metadata.Attempt,
				newest.State, shown)
		}
		return nil
	}
}

// awaitAttempt waits until the newest instance of the container c runs, and is that attempt.
func (s *nodeSuite) awaitAttempt(t *testing.T, pod string, attempt uint32) {
	t.Helper()
	Eventually(t, eventually, "restart of "+pod, func() error {
		if c := s.Newest(t, pod, "c"); c.Metadata.Attempt != attempt ||
			c.State != cri.ContainerState_CONTAINER_RUNNING {
			return fmt.Errorf("attempt %d is %v", c.Metadata.Attempt, c.State)
		}
		return nil
	})
}

// crashes is a container that runs until there is a file /end, and then crashes. Its next instance
// runs again.
func crashes() v1.Container {
	return Sh("c", "while [ ! -e /end ]; do sleep 0.1; done; exit 3")
}

// While the API server is away, or accepts connections and does not answer, pods crash, finish, end
// and run on. When it is back, it shows the truth, and nothing was restarted because of it.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	s.start(t)
	ns, dir := s.plane.Namespace(t, "away"), t.TempDir()
	outages := []struct {
		name       string
		lasts      time.Duration
		begin, end func(t testing.TB)
	}{
		{"killed", 25 * time.Second, s.plane.KillAPIServer, s.plane.StartAPIServer},
		// Longer than the deadline of a write, 10 s.
		{"silent", 15 * time.Second, func(t testing.TB) { s.plane.FreezeAPIServer(t, true) }, func(t testing.TB) { s.plane.FreezeAPIServer(t, false) }},
	}
	names := []string{"stays"}
	s.create(t, ns, MakePod("stays", Main(Sh("c", Forever))))
	for _, o := range outages {
		const untilEnd = "while [ ! -e /end ]; do sleep 0.1; done; "
		stops := Sh("c", fmt.Sprintf("trap 'touch /shared/%s; %s exit 9' TERM; sleep 2147483647 & wait", o.name,
			untilEnd))
		s.create(t, ns, MakePod("crashes-"+o.name, Main(crashes())), MakePod("ending-"+o.name, Grace(600),
			Main(stops), Shared(dir)),
			MakePod("finishes-"+o.name, Policy(v1.RestartPolicyOnFailure), Main(Sh("c", untilEnd+"exit 0"))))
		names = append(names, "crashes-"+o.name, "ending-"+o.name, "finishes-"+o.name)
	}
	var stays *v1.Pod
	for _, name := range names {
		if pod := s.await(t, ns, name, Running); name == "stays" {
			stays = pod
		}
	}
	for _, o := range outages {
		ok := t.Run(o.name, func(t *testing.T) {
			crashes, finishes, ending := "crashes-"+o.name, "finishes-"+o.name, "ending-"+o.name
			awaitTrap(t, s.Cluster, ending, "c")
			s.plane.Kubectl(t, "delete", "-n", ns, "pod", ending, "--wait=false")
			Eventually(t, eventually, "SIGTERM for the deleted pod",
				func() error { _, err := os.Stat(filepath.Join(dir, o.name)); return err })
			o.begin(t)
			began := time.Now()
			for _, name := range []string{crashes, finishes, ending} {
				s.End(t, name, "c")
			}
			static := MakePod("static-"+o.name, Main(Sh("c", Forever)))
			s.agent.Put(t, static) // needs no API server
			s.agent.Await(t, static, eventually, Running)
			s.awaitAttempt(t, crashes, 1)
			Eventually(t, eventually,
				"ends", func() error { return errors.Join(s.noRunning(t, finishes), s.noRunning(t, ending)) })
			time.Sleep(time.Until(began.Add(o.lasts)))

			o.end(t)
			awaitTruth(t, time.Now(), func() error {
				return errors.Join(s.shows(t, ns, finishes, Phase(v1.PodSucceeded), Terminated("c", 0)),
					s.shows(t, ns, crashes, Running, s.showsNewest(t)),
					s.plane.NoPod(ns, ending), s.shows(t, "default", FullName(static), Running))
			})
			s.awaitAttempt(t, crashes, 1)
			adopted(t, stays, s.await(t, ns, "stays", Running))
			s.awaitNode(t, nodeReady)
		})
		if !ok {
			break
		}
	}
}
