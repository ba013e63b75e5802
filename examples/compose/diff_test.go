package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// composed is an agent of either composition.
type composed interface {
	agent
	Drain(ctx context.Context) error
	entries(uid types.UID) []history.Entry
}

type byHand struct{ *Node }

func (n byHand) entries(uid types.UID) []history.Entry { return n.history.Entries(uid) }

type byNew struct{ *kubeletkit.Agent }

func (a byNew) entries(uid types.UID) []history.Entry { return a.Parts().History.Entries(uid) }

// Both compositions do the same with the same input: what is decided and done, what the runtime is
// asked to do, and what is seen of the pods after each step.
func TestCompositionsAreEqual(t *testing.T) {
	var transcripts [2][]string
	for i, compose := range []func(o Options) (composed, error){
		func(o Options) (composed, error) {
			n, err := New(o)
			return byHand{n}, err
		},
		func(o Options) (composed, error) {
			a, err := kubeletkit.New(kubeletkit.Options{
				NodeName: o.NodeName, RootDir: o.RootDir, Runtime: o.Runtime, Sources: o.Sources, Host: o.Host,
				API: kubeletkit.API{Objects: o.Objects},
			})
			return byNew{a}, err
		},
	} {
		root := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			s := &script{root: root}
			s.run(t, compose)
			transcripts[i] = s.lines
		})
	}
	for i := range max(len(transcripts[0]), len(transcripts[1])) {
		around := func(lines []string) string {
			return strings.Join(lines[min(max(0, i-10), len(lines)):min(i+10, len(lines))], "\n")
		}
		if i >= len(transcripts[0]) || i >= len(transcripts[1]) || transcripts[0][i] != transcripts[1][i] {
			require.FailNow(t, "they differ", "by hand:\n%s\n\nby kubeletkit.New:\n%s", around(transcripts[0]),
				around(transcripts[1]))
		}
	}
}

// script runs an agent, and writes down what happens.
type script struct {
	root  string
	rt    *fake.Runtime
	agent composed
	lines []string
}

func (s *script) run(t *testing.T, compose func(o Options) (composed, error)) {
	s.rt = fake.New(fake.Options{Dir: s.root})
	defer s.rt.Close()
	host, source, secrets := *s.rt.Host(), podconfigfake.NewSource(podspec.SourceAPI), objects.New()
	host.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"),
		v1.ResourceMemory: resource.MustParse("1Gi")}
	secrets.Set(secret("1"))
	var err error
	s.agent, err = compose(Options{NodeName: "node", RootDir: s.root, Runtime: s.rt,
		Sources: []podconfig.Source{source}, Host: &host, Objects: secrets})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.agent.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-done)
	}()

	web, once, sized := makePod("web"), makePod("once"), sizedPod(1, "64Mi")
	once.Spec.RestartPolicy = v1.RestartPolicyNever
	web.Spec.Volumes = []v1.Volume{{Name: "key",
		VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}}}}
	web.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "key", MountPath: "/key"}}
	source.Set(web, once, sized)
	s.look(t, "started", 5*time.Second)
	for range 4 { // dead containers do not stay until the next collection
		s.rt.Exit(fake.Target{Pod: "web"}, 1)
		s.look(t, "crashed", 2*time.Second)
		time.Sleep(2 * time.Minute)
	}
	secrets.Set(secret("2"))
	s.look(t, "another secret", 3*time.Second)
	source.Set(web, once, sizedPod(2, "4Gi"))
	s.look(t, "a resize that does not fit", 3*time.Second)
	s.rt.Exit(fake.Target{Pod: "once"}, 0)
	s.look(t, "ended", 3*time.Second)
	source.Set(web)
	s.look(t, "removed", 2*time.Second)
	s.rt.Stop()
	time.Sleep(20 * time.Second)
	s.rt.Exit(fake.Target{Pod: "web"}, 3)
	s.rt.Start(fake.Keep)
	s.look(t, "the runtime was away", 20*time.Second)
	drained := make(chan error, 1)
	go func() { drained <- s.agent.Drain(ctx) }()
	s.look(t, "drained", time.Minute)
	require.NoError(t, <-drained)
	source.Set(web, makePod("late"))
	s.look(t, "another pod", 5*time.Second)

	for _, name := range []string{"web", "once", "sized", "late"} {
		s.say("history of %s", name)
		told := map[string]bool{}
		for _, e := range s.agent.entries(types.UID("uid-" + name)) {
			if e.Duration = 0; e.Stage != runtime.StageSeen {
				told[history.Sentence(e.Record)] = true
			}
		}
		s.lines = append(s.lines, slices.Sorted(maps.Keys(told))...) // the order within an instant varies
	}
}

func (s *script) say(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// look writes down what is there after a while.
func (s *script) look(t *testing.T, what string, after time.Duration) {
	time.Sleep(after)
	synctest.Wait()
	s.say("# %s", what)
	pods := s.agent.Pods()
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		s.say("pod %s is %s %s", pod.Name, pod.Status.Phase, pod.Status.Reason)
		for _, c := range pod.Status.Conditions {
			s.say("  %s %s %s", c.Type, c.Status, c.Reason)
		}
		for _, c := range pod.Status.ContainerStatuses {
			s.say("  restarts %d, waiting %t", c.RestartCount, c.State.Waiting != nil)
		}
	}
	instances := s.rt.Instances(fake.Target{})
	slices.SortFunc(instances, func(a, b fake.Instance) int { return strings.Compare(a.String(), b.String()) })
	for _, i := range instances {
		s.say("runtime: %s", i.String())
	}
	for _, name := range []string{"web", "once", "sized"} {
		s.say("%s: %d sandboxes are ready", name, s.rt.ReadySandboxes(fake.Target{Pod: name}))
	}
	s.say("calls: %v", s.calls())
	data, err := os.ReadFile(filepath.Join(s.root, "pods/uid-web/volumes/kubernetes.io~secret/key/value"))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	s.say("secret: %q", data)
}

// calls returns how often each call that changes something was made since the last look.
func (s *script) calls() []string {
	n := map[string]int{}
	for _, c := range s.rt.Calls(fake.Target{}) {
		if c.Changes() {
			n[c.Method+" "+c.Pod.Name]++
		}
	}
	s.rt.ForgetCalls()
	out := make([]string, 0, len(n))
	for call, count := range n {
		out = append(out, fmt.Sprintf("%s: %d", call, count))
	}
	slices.Sort(out)
	return out
}

func secret(value string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key", Namespace: "default", ResourceVersion: value},
		Data: map[string][]byte{"value": []byte(value)}}
}

// sizedPod returns a pod of the API with a limit of its memory.
func sizedPod(generation int64, memory string) *v1.Pod {
	return testpod.With(makePod("sized"), func(pod *v1.Pod) {
		pod.Generation, pod.Annotations = generation, map[string]string{
			podspec.AnnotationConfigSource: podspec.SourceAPI}
		list := v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	})
}
