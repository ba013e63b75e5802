package agent_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// sentences returns the history of a pod in words, without durations.
func (n *node) sentences(name string) []string {
	var out []string
	for _, e := range n.Parts().History.Entries(types.UID("uid-" + name)) {
		e.Duration = 0
		out = append(out, history.Sentence(e.Record))
	}
	return out
}

// Whatever generator is chosen or made in place of the default, the history has what it sees, and metrics have its
// relists.
func TestHistoryOfEachPLEG(t *testing.T) {
	for name, change := range map[string]func(*kubeletkit.Options){
		"events":         func(*kubeletkit.Options) {},
		"without events": func(o *kubeletkit.Options) { o.PLEG.WithoutEvents = true },
		"override": func(o *kubeletkit.Options) {
			o.PLEG.RelistPeriod = 2 * time.Second
			o.Override.PLEG = func(_ pleg.Generator, p kubeletkit.Parts) (pleg.Generator, error) {
				return pleg.NewGeneric(p.Runtime, p.Cache, p.PLEGOptions.Options), nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt := fake.New(fake.Options{})
				var relists atomic.Int32
				n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
					o.Observe.Measure = func(m runtime.Measurement) {
						if _, ok := m.(pleg.Relisted); ok {
							relists.Add(1)
						}
					}
					change(o)
				})
				defer n.stop(t)
				n.source.Set(makePod("web"))
				n.after(time.Minute)
				streams, _ := rt.Listeners()
				assert.Equal(t, name == "events", streams > 0, "the event stream is open")
				rt.Exit(fake.Target{Pod: "web"}, 1)
				n.after(time.Minute)
				n.source.Set()
				n.after(time.Minute)
				for _, want := range []string{"The sandbox is ready", "Container main runs",
					"Container main exited with code 1 (Error)", "The sandbox has died"} {
					assert.Contains(t, n.sentences("web"), want)
				}
				assert.Positive(t, relists.Load())
			})
		})
	}
}

// The history has what was seen, what was decided and why, and what came of it.
func TestHistoryOfALife(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{})
		n := startNodeWith(t, dir, rt, func(*kubeletkit.Options) {})
		defer n.stop(t)
		n.source.Set(makePod("web"))
		n.after(time.Minute)
		rt.Exit(fake.Target{Pod: "web"}, 1)
		n.after(time.Minute)
		rt.Exit(fake.Target{Pod: "web"}, 1)
		n.after(time.Minute)
		n.source.Set()
		n.after(time.Minute)
		// What was decided and done. At one instant, what was seen of it may come before or after it.
		n.inOrder(t, "web",
			"The pod is admitted, from source test",
			"A sandbox is to be created: the pod has none",
			"Container main is to be started: it has not run yet",
			"The sandbox is created",
			"Container main is started",
			"Container main exited with code 1 (Error)",
			"Container main is to be started again, restart 1: it exited with code 1",
			"Container main exited with code 1 (Error)",
			"Container main waits 0s before the next attempt: it keeps ending, last with code 1",
			"Container main is to be started again, restart 2: it exited with code 1",
			"Container main is started",
			"The pod is not desired any more",
			"The pod is to be stopped",
			"Container main is stopped",
			"The pod is stopped",
			"The pod is gone",
		)
		// What was seen. That it runs for the second time is merged with the third time.
		n.inOrder(t, "web",
			"A sandbox is to be created: the pod has none",
			"Container main runs",
			"Container main exited with code 1 (Error)",
			"Container main exited with code 1 (Error)",
			"Container main runs",
			"The pod is not desired any more",
			"The pod is gone",
		)
		n.inOrder(t, "web", "A sandbox is to be created: the pod has none", "The sandbox is ready",
			"Container main exited with code 1 (Error)")
		entries := n.Parts().History.Entries("uid-web")
		for i, e := range entries {
			switch {
			case e.Stage == runtime.StageSeen:
				assert.Contains(t, []runtime.RecordSource{runtime.SourceEvent, runtime.SourceInspection,
					runtime.SourceRelist}, e.Source)
			case e.Kind == runtime.KindBackOff:
				assert.Equal(t, 10*time.Second, e.Duration)
			}
			if e.Kind == runtime.KindContainerExited {
				assert.InDelta(t, 55, e.Duration.Seconds(), 6)
				assert.WithinDuration(t, e.At, e.First, 2*time.Second)
			}
			assert.False(t, i > 0 && e.Last.Before(entries[i-1].Last), "in order")
		}
	})
}

// inOrder asserts that the history of the pod has the sentences, in this order, maybe with
// others in between.
func (n *node) inOrder(t *testing.T, name string, want ...string) {
	t.Helper()
	got := n.sentences(name)
	next := 0
	for _, s := range got {
		if next < len(want) && s == want[next] {
			next++
		}
	}
	if next < len(want) {
		assert.Failf(t, "history", "there is no %q, or not in this place, in\n%s", want[next], strings.Join(got, "\n"))
	}
}

// Each of these questions has its answer in the history.
func TestHistoryAnswers(t *testing.T) {
	exec := func(cmd string) *v1.LifecycleHandler {
		return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{cmd}}}
	}
	for name, tt := range map[string]struct {
		options func(*kubeletkit.Options)
		pod     func(*v1.Pod)
		runtime func(*fake.Runtime)
		then    func(*testing.T, *node, *v1.Pod)
		want    []string
	}{
		"why was it restarted": {
			pod: func(p *v1.Pod) {
				p.Spec.Containers[0].LivenessProbe = &v1.Probe{
					ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}},
					PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1, TimeoutSeconds: 1}
			},
			runtime: func(rt *fake.Runtime) {
				rt.Script(fake.Target{Pod: "web"},
					fake.Behavior{Exec: func(context.Context, []string) (runtime.ExecResult, error) {
						return runtime.ExecResult{Output: []byte("no database"), ExitCode: 1}, nil
					}}, fake.Behavior{})
			},
			want: []string{
				"Liveness probe of container main fails: no database",
				"Container main is to be stopped: its liveness probe has failed",
				"Container main is to be started again, restart 1: its liveness probe has failed",
				"Container main is stopped",
				"Container main exited with code 143 (Error)",
				"Container main runs",
			},
		},
		"why does it not run": {
			options: func(o *kubeletkit.Options) {
				o.Join = []lifecycle.Component{refuseAll{}}
			},
			want: []string{"The pod is refused, Maintenance: the node is repaired"},
		},
		"why does its image not come": {
			runtime: func(rt *fake.Runtime) {
				rt.Inject(fake.Fault{Call: "PullImage", Err: errors.New("no route to the registry")})
			},
			want: []string{
				"Image image:1 is to be pulled for container main: it is not on the node",
				"Pulling image image:1 failed: no route to the registry",
				"Container main waits 0s before the next attempt: its image could not be pulled",
				"Starting container main failed: ErrImagePull",
			},
		},
		"why does it not come up": {
			pod: testpod.Volumes(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}),
			want: []string{
				`The sync of the pod failed: preparing it: volumes: volume "v" of failed to get Plugin from volumeSpec for volume "v" err=no volume plugin matched: volume type not supported: nfs; volumes of NFS servers need the plugin for them, and a runtime with mounts`},
		},
		"what did the hooks do": {
			pod: func(p *v1.Pod) {
				p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: exec("warm-up"), PreStop: exec("secret")}
			},
			runtime: func(rt *fake.Runtime) {
				rt.Script(fake.Target{Pod: "web"},
					fake.Behavior{Exec: func(_ context.Context, cmd []string) (runtime.ExecResult, error) {
						time.Sleep(2 * time.Second)
						return runtime.ExecResult{Output: []byte("the password"),
							ExitCode: int32(len(cmd[0]) - len("warm-up"))}, nil
					}})
			},
			then: func(t *testing.T, n *node, _ *v1.Pod) { n.source.Set(); n.after(time.Minute) },
			want: []string{
				"The postStart hook of container main has ended",
				"The pod is not desired any more",
				"The preStop hook of container main failed: exit code -1",
				"Container main is stopped",
				"The pod is stopped",
			},
		},
		"what has changed": {
			then: func(t *testing.T, n *node, web *v1.Pod) {
				web.Spec.Containers[0].Image, web.Spec.HostAliases = "image:2", []v1.HostAlias{{IP: "192.0.2.7"}}
				n.source.Set(web)
				n.after(time.Minute)
			},
			want: []string{
				"The pod was changed in spec.hostAliases, spec.containers{main}.image; these do not act on what " +
					"runs: spec.hostAliases",
				"Container main is to be stopped: its definition has changed",
				"Container main is to be started again, restart 1: its definition has changed",
			},
		},
		"why was it recreated": {
			options: func(o *kubeletkit.Options) { o.RecreateUpdated = true },
			then: func(t *testing.T, n *node, web *v1.Pod) {
				web.Spec.Containers[0].Command = []string{"serve"}
				n.source.Set(web)
				n.after(time.Minute)
			},
			want: []string{
				"The pod was changed in spec.containers{main}.command",
				"The pod is stopped and started again, because of changes in spec.containers{main}.command",
				"The pod is to be stopped",
				"The pod is stopped",
				"Sandbox 1 is to be created: the last one has died",
			},
		},
		"why was it evicted": {
			then: func(t *testing.T, n *node, _ *v1.Pod) {
				require.NoError(t,
					n.Evict("uid-web", runtime.Eviction{Reason: "Evicted",
						Message: "The node was low on resource: memory.", GracePeriod: new(int64(5))}))
				n.after(time.Minute)
			},
			want: []string{
				"The pod fails for good, Evicted: The node was low on resource: memory.",
				"The pod is to be stopped: it is evicted",
				"The pod is stopped",
			},
		},
		"why did it end with the node": {
			then: func(t *testing.T, n *node, _ *v1.Pod) { require.NoError(t, n.Drain(t.Context())) },
			want: []string{
				"The pod fails for good, Terminated: Pod was terminated in response to imminent node shutdown.",
				"The pod is to be stopped",
			},
		},
		"why did it fail": {
			pod: func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(20)) },
			want: []string{
				"The pod fails for good, DeadlineExceeded: Pod was active on the node longer than the specified deadline",
				"The pod is to be stopped: its containers have finished",
			},
		},
		"why does its successor wait": {
			runtime: func(rt *fake.Runtime) {
				rt.Script(fake.Target{Pod: "web"}, fake.Behavior{StopDelay: 20 * time.Second})
			},
			then: func(t *testing.T, n *node, web *v1.Pod) {
				next := web.DeepCopy()
				next.UID = "uid-next"
				n.source.Set(next)
				n.after(5 * time.Second)
				n.inOrder(t, "next", "The pod is admitted, from source test",
					"The pod waits until another pod of its name has ended")
				n.after(time.Minute)
				n.inOrder(t, "next", "The pod waits until another pod of its name has ended",
					"A sandbox is to be created: the pod has none")
			},
			want: []string{"Container main is stopped", "The pod is gone"},
		},
		"what happened to its sandbox": {
			then: func(t *testing.T, n *node, _ *v1.Pod) {
				n.runtime.KillSandbox(fake.Target{Pod: "web"})
				n.after(time.Minute)
			},
			want: []string{
				"The sandbox has died",
				"Sandbox 1 is to be created: the last one has died",
				"Container main is to be started again, restart 1: it exited with code 137",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt := fake.New(fake.Options{})
				if tt.runtime != nil {
					tt.runtime(rt)
				}
				n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
					if tt.options != nil {
						tt.options(o)
					}
				})
				defer n.stop(t)
				web := makePod("web")
				if tt.pod != nil {
					tt.pod(web)
				}
				n.source.Set(web)
				n.after(59 * time.Second)
				if tt.then != nil {
					tt.then(t, n, web.DeepCopy())
				}
				n.inOrder(t, "web", tt.want...)
			})
		})
	}
}

type refuseAll struct{}

func (refuseAll) Name() string { return "maintenance" }
func (refuseAll) Admit(lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	return lifecycle.AdmitResponse{}, lifecycle.Refuse("Maintenance", "the node is repaired")
}

// Where there is a checkpoint, the history survives the agent.
func TestHistorySurvivesTheAgent(t *testing.T) {
	for name, kept := range map[string]bool{"with a checkpoint": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt := fake.New(fake.Options{})
				run := func(during func(*node)) {
					n := startNodeWith(t, dir, rt, func(o *kubeletkit.Options) {
						if kept {
							store, err := checkpoint.New(filepath.Join(dir, "kept"), checkpoint.Options{})
							require.NoError(t, err)
							o.Checkpoint = store
						}
					})
					n.source.Set(makePod("web"))
					during(n)
					n.stop(t)
				}
				run(func(n *node) { n.after(time.Minute) })
				rt.Exit(fake.Target{Pod: "web"}, 1)
				run(func(n *node) {
					n.after(time.Minute)
					// The relist records what it sees while the worker decides, and the end of the old
					// instance may wait for an inspection while the start of the new one is seen.
					n.inOrder(t, "web", "Container main exited with code 1 (Error)")
					n.inOrder(t, "web", "Container main runs")
					n.inOrder(t, "web", "Container main is to be started again, restart 1: it exited with code 1",
						"Container main is started")
					if kept {
						n.inOrder(t, "web", "Container main is started", "The agent was started again",
							"Container main exited with code 1 (Error)")
						n.inOrder(t, "web", "The agent was started again", "Container main runs")
					} else {
						assert.NotContains(t, n.sentences("web"), "The agent was started again")
					}
				})
			})
		})
	}
}

// Nothing is recorded of a pod to which nothing happens, however often it is synced,
// relisted and probed.
func TestAnIdlePodHasNoHistory(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := startNodeWith(t, dir, fake.New(fake.Options{}), func(*kubeletkit.Options) {})
		defer n.stop(t)
		web := makePod("web")
		web.Spec.Containers[0].ReadinessProbe = &v1.Probe{
			ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}},
			PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1, TimeoutSeconds: 1}
		n.source.Set(web)
		n.after(time.Minute)
		before := n.Parts().History.Entries("uid-web")
		n.after(2 * time.Hour)
		assert.Equal(t, before, n.Parts().History.Entries("uid-web"))
	})
}

// A history of the embedder that panics ends nothing.
func TestAHistoryThatPanics(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := startNodeWith(t, dir, fake.New(fake.Options{}), func(o *kubeletkit.Options) {
			o.Override.History = kubeletkit.Wrap(func(h history.Store) history.Store { return panicking{h} })
		})
		defer n.stop(t)
		n.source.Set(makePod("web"))
		assert.Equal(t, v1.PodRunning, n.after(5 * time.Second)["web"].Status.Phase)
	})
}

type panicking struct{ history.Store }

func (panicking) Record(runtime.Record) { panic("no room") }
