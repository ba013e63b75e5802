package runtimetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// poll is the time between two reads of a status that a test waits for.
const poll = 20 * time.Millisecond

// env is the environment of one test.
type env struct {
	*testing.T
	*Subject
	f   *Factory
	ctx context.Context
	// mine are the pods of the test. They are removed at its end.
	mine []*v1.Pod
}

func newEnv(t *testing.T, f *Factory, s *Subject) *env {
	t.Helper()
	require.NotNil(t, s.Runtime, "Subject.Runtime")
	require.NotNil(t, s.Host, "Subject.Host")
	require.NotEmpty(t, s.Image, "Subject.Image")
	require.NotEmpty(t, s.Sleep, "Subject.Sleep")
	require.NotNil(t, s.Exit, "Subject.Exit")
	require.NotEmpty(t, s.Dir, "Subject.Dir")
	e := &env{T: t, Subject: s, f: f, ctx: t.Context()}
	t.Cleanup(e.clean)
	return e
}

// clean removes the pods of the test.
func (e *env) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), e.f.Timeout)
	defer cancel()
	zero := int64(0)
	for _, pod := range e.mine {
		ref := runtime.RefOf(pod)
		status, err := e.Runtime.InspectPod(ctx, ref)
		if err == nil {
			err = e.Runtime.KillPod(ctx, runtime.PodKill{Pod: pod, Status: status, GracePeriod: &zero})
		}
		if err != nil {
			e.Errorf("cleaning up pod %s: %v", ref, err)
			continue
		}
		for i := range status.Sandboxes {
			if err := e.Runtime.RemoveSandbox(ctx, status.Sandboxes[i].ID); err != nil {
				e.Errorf("cleaning up pod %s: %v", ref, err)
			}
		}
	}
}

// pod returns a new pod with a unique UID. It is not started.
func (e *env) pod(policy v1.RestartPolicy, containers ...v1.Container) *v1.Pod {
	var unique [8]byte
	_, _ = rand.Read(unique[:])
	id := hex.EncodeToString(unique[:])
	grace := int64(30)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pod-" + id, Namespace: "runtimetest", UID: types.UID("uid-" + id),
			Annotations: map[string]string{podspec.AnnotationConfigSource: "runtimetest"},
		},
		Spec: v1.PodSpec{
			RestartPolicy: policy, Containers: containers, TerminationGracePeriodSeconds: &grace,
			HostNetwork: e.HostNetwork, DNSPolicy: v1.DNSDefault, EnableServiceLinks: new(bool),
			SecurityContext: &v1.PodSecurityContext{},
		},
	}
	require.NoError(e, os.MkdirAll(filepath.Join(e.Dir, string(pod.UID)), 0o755))
	e.mine = append(e.mine, pod)
	return pod
}

// container returns a container that runs the command.
func (e *env) container(name string, command []string) v1.Container {
	return v1.Container{
		Name: name, Image: e.Image, Command: command, ImagePullPolicy: v1.PullIfNotPresent,
		TerminationMessagePath: "", TerminationMessagePolicy: v1.TerminationMessageReadFile,
	}
}

// status returns the current status of the pod.
func (e *env) status(pod *v1.Pod) *runtime.PodStatus {
	e.Helper()
	status, err := e.Runtime.InspectPod(e.ctx, runtime.RefOf(pod))
	require.NoError(e, err, "InspectPod")
	require.NotNil(e, status, "InspectPod returned neither a status nor an error")
	require.Equal(e, runtime.RefOf(pod), status.PodRef)
	return status
}

// step makes one sync with a fresh status.
func (e *env) step(pod *v1.Pod) (runtime.SyncResult, error) {
	e.Helper()
	return e.syncWith(e.ctx, pod, e.status(pod))
}

func (e *env) syncWith(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus) (runtime.SyncResult, error) {
	return e.Runtime.SyncPod(ctx, e.request(pod, status))
}

func (e *env) request(pod *v1.Pod, status *runtime.PodStatus) runtime.PodSync {
	return runtime.PodSync{Pod: pod, Status: status, Host: e.Host, Dir: filepath.Join(e.Dir, string(pod.UID))}
}

// mustStep is a step without an error.
func (e *env) mustStep(pod *v1.Pod) runtime.SyncResult {
	e.Helper()
	res, err := e.step(pod)
	require.NoError(e, err, "SyncPod")
	return res
}

// wait polls until the condition holds for the pod's status, and returns that status.
func (e *env) wait(pod *v1.Pod, what string, cond func(s *runtime.PodStatus) bool) *runtime.PodStatus {
	e.Helper()
	deadline := time.Now().Add(e.f.Timeout)
	for {
		status := e.status(pod)
		if cond(status) {
			return status
		}
		if time.Now().After(deadline) {
			require.Failf(e, "timeout", "waiting until %s: %s", what, describe(status))
		}
		time.Sleep(poll)
	}
}

// drive syncs the pod, as an agent does, until the condition holds for its status.
func (e *env) drive(pod *v1.Pod, what string, cond func(s *runtime.PodStatus) bool) *runtime.PodStatus {
	e.Helper()
	return e.wait(pod, what, func(s *runtime.PodStatus) bool {
		e.Helper()
		if cond(s) {
			return true
		}
		_, err := e.syncWith(e.ctx, pod, s)
		require.NoError(e, err, "SyncPod")
		return false
	})
}

// start syncs the pod until all main containers run and, if they report it, are ready
// for signals.
func (e *env) start(pod *v1.Pod) *runtime.PodStatus {
	e.Helper()
	s := e.drive(pod, "all containers run", func(s *runtime.PodStatus) bool {
		for i := range pod.Spec.Containers {
			if !running(s, pod.Spec.Containers[i].Name) {
				return false
			}
		}
		return true
	})
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if e.SaysReady && (slices.Equal(c.Command, e.Sleep) || slices.Equal(c.Command, e.Stubborn)) {
			e.readLog(s.Newest(c.Name).LogPath)
		}
	}
	return s
}

// startReady is start for tests that need the signal handlers of the commands.
func (e *env) startReady(pod *v1.Pod) {
	e.Helper()
	e.start(pod)
	if !e.SaysReady {
		time.Sleep(settle)
	}
}

// kill stops the pod with its own grace period, or with grace seconds.
func (e *env) kill(pod *v1.Pod, grace ...int64) *runtime.PodStatus {
	e.Helper()
	req := runtime.PodKill{Pod: pod, Status: e.status(pod)}
	if len(grace) > 0 {
		req.GracePeriod = &grace[0]
	}
	require.NoError(e, e.Runtime.KillPod(e.ctx, req), "KillPod")
	status := e.status(pod)
	require.Falsef(e, status.Running(), "KillPod has returned, and the pod runs: %s", describe(status))
	return status
}

// listed returns the pod from a new list, or nil if it is not in it.
func (e *env) listed(pod *v1.Pod) *runtime.Pod {
	e.Helper()
	pods, err := e.Runtime.ListPods(e.ctx)
	require.NoError(e, err, "ListPods")
	var found *runtime.Pod
	for _, p := range pods {
		if p.UID == pod.UID {
			require.Nil(e, found, "the pod is listed twice")
			found = p
		}
	}
	return found
}

func running(s *runtime.PodStatus, name string) bool {
	c := s.Newest(name)
	return c != nil && c.State == runtime.ContainerRunning
}

func exited(s *runtime.PodStatus, name string) bool {
	c := s.Newest(name)
	return c != nil && c.State == runtime.ContainerExited
}

// describe is the status in one line, for messages.
func describe(s *runtime.PodStatus) string {
	text := "pod " + s.PodRef.String() + ":"
	for i := range s.Sandboxes {
		text += " sandbox " + s.Sandboxes[i].ID + " " + string(s.Sandboxes[i].State) + ";"
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		text += " " + c.Name + " " + string(c.State) + " " + c.Reason + " " + c.Message + ";"
	}
	return text
}
