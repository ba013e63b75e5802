package csi_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// second is the name of the second driver of the model. Its volumes are not staged.
const second = "second.example.com"

// model is a node with two drivers and pods that share their volumes.
type model struct {
	*rig
	secondOpts csidriver.Options
	stopSecond func()
	killer     *killer
	pods       map[string]*v1.Pod
	// ready are the volumes of the pods whose last sync has succeeded, ending the pods that are being removed.
	ready  map[string]map[string]runtime.Volume
	ending map[string]bool
	// quiet means that there are no faults, and both drivers are registered.
	quiet bool
	// trace is what has happened.
	trace []string
}

func (m *model) did(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func newModel(t *testing.T, opts csidriver.Options) *model {
	m := &model{killer: &killer{}, pods: map[string]*v1.Pod{}, ready: map[string]map[string]runtime.Volume{},
		ending: map[string]bool{}, quiet: true}
	opts.After = m.killer.answered
	m.secondOpts = csidriver.Options{Name: second, Dir: t.TempDir(), Links: opts.Links, After: opts.After,
		Settings: csidriver.Settings{NodeCapabilities: without(stageCapability)}}
	m.rig = labelled(t, opts)
	m.cluster.add(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PodInfoOnMount: ptr.To(true),
		RequiresRepublish:    ptr.To(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{"Persistent", "Ephemeral"}}}, second)
	m.second, m.stopSecond = startDriver(t, m.secondOpts)
	require.NoError(t, m.registerSecond())
	m.add("data")
	m.add("raw", block)
	m.add("alone", mode(v1.ReadWriteOncePod))
	m.addTo(m.second, "other")
	m.addTo(m.second, "device", block)
	m.add("same", func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "handle-data" }) // as "data"
	return m
}

// newPod returns a pod with some of the volumes.
func (m *model) newPod(rt *rapid.T, name string) *v1.Pod {
	pod := m.podOf(name, rapid.SampledFrom([]string{levelOne, levelOne, levelOne, levelTwo}).Draw(rt, "level"))
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"data", "same", "raw", "alone", "other", "device", "inline",
		"inline-2"}), 1, 4, rapid.ID).Draw(rt, "volumes")
	for _, v := range names {
		switch v {
		case "inline":
			m.use(pod, m.inline("raw-inline"))
		case "inline-2": // has the name of a block volume
			if slices.Contains(names, "device") {
				continue
			}
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "device", VolumeSource: v1.VolumeSource{
				CSI: &v1.CSIVolumeSource{Driver: second}}})
			main := &pod.Spec.Containers[0]
			main.VolumeMounts = append(main.VolumeMounts, v1.VolumeMount{Name: "device", MountPath: "/device"})
		default:
			more := m.pod(name, v)
			pod.Spec.Volumes = append(pod.Spec.Volumes, more.Spec.Volumes...)
			main, with := &pod.Spec.Containers[0], more.Spec.Containers[0]
			main.VolumeMounts = append(main.VolumeMounts, with.VolumeMounts...)
			main.VolumeDevices = append(main.VolumeDevices, with.VolumeDevices...)
		}
	}
	return pod
}

// conflicts reports whether another pod with another level may have a volume of the pod that has a label.
func (m *model) conflicts(pod *v1.Pod) bool {
	of := func(pod *v1.Pod) (level string, data bool) {
		data = slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == "data" || v.Name == "same" })
		return pod.Spec.SecurityContext.SELinuxOptions.Level, data
	}
	level, data := of(pod)
	for _, other := range m.pods {
		if otherLevel, has := of(other); data && has && otherLevel != level {
			return true
		}
	}
	return false
}

// uses reports whether a pod that has begun to be set up has the volume that one pod may have.
func alone(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.Name == "alone"
	})
}

func (m *model) sync(name string) {
	pod := m.pods[name]
	ready, err := m.setUp(pod)
	quiet := m.quiet && !m.killer.dead
	m.did("set up %s: %v, killed at %s: %v, %v", name, err, m.killer.last, m.killer.dead, m.calls())
	m.revive()
	if err == nil {
		m.ready[name] = ready
		for _, v := range pod.Spec.Volumes {
			mounted := slices.Contains([]string{"data", "same", "alone"}, v.Name) && v.PersistentVolumeClaim != nil
			assert.False(m, mounted && ready[v.Name].Relabel, v.Name)
		}
		for _, v := range pod.Spec.Volumes {
			path := ready[v.Name].HostPath
			if info, err := os.Stat(path); assert.NoError(m, err) && info.IsDir() {
				require.NoError(m, os.WriteFile(filepath.Join(path, "of-"+name), []byte(name), 0o600))
			}
		}
		return
	}
	assert.NotContains(m, err.Error(), "take that volume down first")
	if quiet && strings.Contains(err.Error(), "conflicting SELinux labels") {
		assert.True(m, m.conflicts(pod), "%v", err)
	} else if quiet {
		others := 0
		for other, p := range m.pods {
			if other != name && alone(p) {
				others++
			}
		}
		assert.True(m, alone(pod) && others > 0, "%v", err)
		assert.ErrorContains(m, err, "ReadWriteOncePod")
	}
}

// revive starts another agent if this one was killed.
func (m *model) revive() {
	dead := m.killer.dead
	m.killer.left, m.killer.dead = 0, false
	if dead {
		m.restartAgent()
	}
}

func (m *model) restartAgent() {
	m.Helper()
	m.did("restart")
	m.settle()
	m.restart()
	m.plugin.Before(m.killer.step)
}

// settle ends the faults, and registers the drivers.
func (m *model) settle() {
	m.Helper()
	m.driver.Release()
	m.second.Release()
	if !m.quiet {
		_ = m.register() // if it is not registered
		_ = m.registerSecond()
	}
	m.quiet = true
}

func (m *model) end1(name string) {
	m.ending[name] = true
	delete(m.ready, name)
	err := m.remove(m.pods[name])
	killed, quiet := m.killer.dead, m.quiet && !m.killer.dead
	m.did("remove %s: %v, killed at %s: %v, %v", name, err, m.killer.last, killed, m.calls())
	m.revive()
	if err == nil {
		delete(m.pods, name)
		delete(m.ending, name)
	} else if quiet {
		assert.NoError(m, err)
	}
}

// check checks what must always hold.
func (m *model) check() {
	assert.Empty(m, m.driver.Violations())
	assert.Empty(m, m.second.Violations())
	for name, volumes := range m.ready {
		for v, ready := range volumes {
			info, err := os.Stat(ready.HostPath)
			if assert.NoError(m, err, "volume %s of pod %s", v, name) && info.IsDir() {
				assert.FileExists(m, filepath.Join(ready.HostPath, "of-"+name), "what a pod has written stays")
			}
		}
	}
}

// TestModel has pods that share volumes of two drivers come and go, while calls fail, drivers and the agent are
// restarted, and the agent is killed. With -rapid.checks=1000 -rapid.steps=100 it does 100000 steps.
func TestModel(t *testing.T) {
	links := os.Geteuid() != 0
	methods := rapid.SampledFrom([]string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume",
		"NodeUnstageVolume", "NodeGetCapabilities", ""})
	failures := rapid.SampledFrom([]codes.Code{codes.Internal, codes.Unavailable, codes.NotFound, codes.Aborted,
		codes.DeadlineExceeded})
	rapid.Check(t, func(rt *rapid.T) {
		if t.Failed() { // in an earlier run of it
			return
		}
		m := newModel(t, csidriver.Options{Links: links})
		m.plugin.Before(m.killer.step)
		defer func() { m.stopSecond(); m.stop(); m.end() }()
		anyPod := func(ending bool) (string, bool) {
			names := slices.DeleteFunc(slices.Sorted(maps.Keys(m.pods)), func(n string) bool { return !ending && m.ending[n] })
			if len(names) == 0 {
				return "", false
			}
			return rapid.SampledFrom(names).Draw(rt, "pod"), true
		}
		maybeKill := func() {
			if rapid.IntRange(0, 2).Draw(rt, "kill") == 0 {
				m.killer.left = rapid.IntRange(1, 25).Draw(rt, "step")
			}
		}
		anyDriver := func() *csidriver.Driver {
			return rapid.SampledFrom([]*csidriver.Driver{m.driver, m.second}).Draw(rt, "driver")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				name := fmt.Sprint("p", rapid.IntRange(1, 5).Draw(rt, "name"))
				if m.pods[name] == nil {
					m.pods[name] = m.newPod(rt, name)
					m.did("add %s: %v", name, m.pods[name].Spec.Volumes)
				}
			},
			"sync": func(*rapid.T) {
				if name, ok := anyPod(false); ok {
					maybeKill()
					m.sync(name)
				}
			},
			"sync again": func(*rapid.T) {
				if name, ok := anyPod(false); ok {
					m.sync(name)
				}
			},
			"remove": func(*rapid.T) {
				if name, ok := anyPod(true); ok {
					maybeKill()
					m.end1(name)
				}
			},
			"fault": func(*rapid.T) {
				m.quiet = false
				f := csidriver.Fault{Method: methods.Draw(rt, "method"), Code: failures.Draw(rt, "code"),
					Late: rapid.Bool().Draw(rt, "late"), Times: rapid.IntRange(1, 3).Draw(rt, "times")}
				// A driver that has done the work does not refuse it for good.
				f.Late = f.Late && f.Code != codes.Internal && f.Code != codes.NotFound
				anyDriver().Inject(f)
				m.did("fault %+v", f)
			},
			"deregister": func(*rapid.T) {
				m.quiet = false
				m.did("deregister")
				m.plugin.Deregister(m.registration())
			},
			"settle":  func(*rapid.T) { m.settle() },
			"restart": func(*rapid.T) { m.restartAgent() },
			"restart the driver": func(*rapid.T) {
				m.settle()
				m.restartDriver()
				m.did("restart the driver")
			},
			"": func(*rapid.T) {
				m.check()
				if t.Failed() {
					t.Fatal(strings.Join(m.trace, "\n"))
				}
			},
		})
		m.settle()
		for _, name := range slices.Sorted(maps.Keys(m.pods)) {
			m.end1(name)
		}
		assert.Empty(t, m.pods)
		m.isClean()
		assert.Empty(t, inDriver(t, m.secondOpts.Dir))
		assert.False(t, strings.Contains(m.host.log(), secret))
		if t.Failed() {
			t.Fatal(strings.Join(m.trace, "\n"))
		}
	})
}
