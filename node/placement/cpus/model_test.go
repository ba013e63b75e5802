package cpus_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/internal/machines"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

var scopes = []topology.Scope{topology.ScopeContainer, topology.ScopePod}

// makeWhole gives the pod resources as a whole, at least what its containers request at a time, and takes the requests
// of some of its containers.
func makeWhole(t *rapid.T, p *v1.Pod) {
	total := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	cpu := total[v1.ResourceCPU]
	cpu.Add(resource.MustParse(rapid.SampledFrom([]string{"0", "500m", "1", "2"}).Draw(t, "more")))
	total[v1.ResourceCPU] = cpu
	p.Spec.Resources = &v1.ResourceRequirements{Requests: total, Limits: total}
	for _, c := range podspec.Containers(&p.Spec) {
		switch rapid.IntRange(0, 3).Draw(t, "container") {
		case 0:
			c.Resources = v1.ResourceRequirements{}
		case 1:
			c.Resources.Limits = nil
		}
	}
}

// node is a node whose pods come, run and go, while its agent is restarted and CPUs go offline.
type node struct {
	t       *rapid.T
	path    string
	tree    fstest.MapFS
	names   []string // of options
	policy  string
	scope   topology.Scope
	whole   bool // whether pods with resources as a whole get CPUs
	machine numa.Machine
	m       *cpus.Manager
	admit   *lifecycle.Steps
	writes  bool // whether the checkpoint can be written

	pods map[types.UID]*nodePod
	// known are all pods that there were; admitted those that this agent has admitted.
	known    map[types.UID]*v1.Pod
	admitted map[types.UID]bool
	next     int
}

type nodePod struct {
	pod *v1.Pod
	// had has the CPUs with which each container was created in this agent's life or an earlier one; the container
	// runs.
	had map[string]cpuset.CPUSet
}

// modelNode is the node as its agent shows it.
type modelNode struct {
	lifecycle.NopNode
	n *node
}

func (m modelNode) Gone(uid types.UID) bool { return m.n.pods[uid] == nil }

// start makes an agent, the next one. If the checkpoint does not go with the machine, it is reset, and containers that
// run may get other CPUs.
func (n *node) start(reset bool) {
	n.admitted = map[types.UID]bool{}
	machine, err := numa.Read(n.tree)
	require.NoError(n.t, err)
	opts := cpus.Options{Reset: reset, ReservedCount: 2, WholePods: n.whole}
	given := map[string]string{}
	for _, name := range n.names {
		given[name] = "true"
	}
	opts.PolicyOptions, err = cpus.ParsePolicyOptions(given)
	require.NoError(n.t, err)
	m, err := cpus.New(machine, n.path, &setter{}, opts)
	require.NoError(n.t, err)
	m.WithoutSync(func(path string, data []byte) error {
		if !n.writes {
			return errors.New("no space left on device")
		}
		return os.WriteFile(path, data, 0o600)
	})
	require.NoError(n.t, m.Join(modelNode{n: n}))
	policy, err := topology.NewPolicy(n.policy, machine, topology.PolicyOptions{})
	require.NoError(n.t, err)
	manager, err := topology.New(topology.Options{Policy: policy, Scope: n.scope})
	require.NoError(n.t, err)
	inNode := nodefake.NewNode()
	inNode.SetComponents(m)
	require.NoError(n.t, manager.Join(inNode))
	steps, err := lifecycle.New(m, manager)
	require.NoError(n.t, err)
	if err := m.Restore(); err != nil {
		require.ErrorAs(n.t, err, new(*cpus.StateError))
		n.start(true)
		return
	}
	n.machine, n.m, n.admit = machine, m, steps
	for uid, p := range n.pods {
		if err := n.try(p.pod); err != nil { // as for each pod that an earlier agent has admitted
			n.end(uid)
		}
	}
	for _, p := range n.pods {
		for name, had := range p.had {
			if has := n.m.AssignedForTest(p.pod.UID, name); !has.Equals(had) {
				if had.IsEmpty() { // with other settings, it gets some; they are not in the checkpoint yet
					delete(p.had, name)
					continue
				}
				require.True(n.t, reset, "container %s of pod %s runs with %s and has %s", name, p.pod.UID, had, has)
				p.had[name] = has
			}
		}
	}
}

func (n *node) try(p *v1.Pod) error {
	req := lifecycle.AdmitRequest{Pod: p}
	for uid, other := range n.pods {
		if uid != p.UID && n.admitted[uid] {
			req.Active = append(req.Active, other.pod)
		}
	}
	_, err := n.admit.Admit(req)
	if err != nil {
		n.refused(p)
	}
	n.admitted[p.UID], n.known[p.UID] = err == nil, p
	return err
}

// refused has nothing of the pod run before.
func (n *node) refused(p *v1.Pod) {
	if known := n.pods[p.UID]; known == nil || len(known.had) == 0 { // what runs has an end
		require.NoError(n.t, n.admit.Refused(p))
		require.False(n.t, n.m.HasExclusive(p.UID), "a pod that is refused has no CPUs")
	}
}

func (n *node) end(uid types.UID) {
	require.NoError(n.t, n.m.Ended(context.Background(), lifecycle.EndedRequest{Pod: n.pods[uid].pod}))
	delete(n.pods, uid)
}

// check asserts what always holds.
func (n *node) check() {
	owner := map[int]types.UID{}
	shared := n.m.Shared()
	strict := strings.Contains(strings.Join(n.names, ","), cpus.OptionStrictReservation)
	var all []int
	for _, c := range n.machine.CPUs {
		all = append(all, c.ID)
	}
	reserved := cpuset.New(all...).Difference(n.m.Allocatable())
	require.Equal(n.t, 2, reserved.Size())
	require.Equal(n.t, strict, shared.Intersection(reserved).IsEmpty(), "reserved CPUs %s, shared %s", reserved, shared)
	sum := shared
	for uid, p := range n.pods {
		whole := n.m.OfPod(uid)
		n.checkWhole(p, whole)
		for _, c := range append(p.pod.Spec.InitContainers, p.pod.Spec.Containers...) {
			set := n.m.Exclusive(uid, c.Name)
			require.Contains(n.t, []int{0, cpus.Exclusive(p.pod, &c, true)}, set.Size())
			set = n.m.AssignedForTest(uid, c.Name).Union(whole)
			sum = sum.Union(set)
			require.True(n.t, set.Intersection(shared).IsEmpty(), "shared %s, container %s", shared, set)
			require.True(n.t, set.Intersection(reserved).IsEmpty())
			for _, id := range set.List() {
				require.Contains(n.t, []types.UID{"", uid}, owner[id], "CPU %d has two owners", id)
				owner[id] = uid
			}
			if had, ok := p.had[c.Name]; ok {
				require.Equal(n.t, had.String(), n.m.AssignedForTest(uid, c.Name).String(),
					"a container that runs keeps its CPUs")
			}
		}
	}
	for uid, p := range n.known { // gone, and their CPUs are taken back when they are needed
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			sum = sum.Union(n.m.AssignedForTest(uid, c.Name))
		}
		sum = sum.Union(n.m.OfPod(uid))
	}
	if strict {
		sum = sum.Union(reserved)
	}
	require.Equal(n.t, cpuset.New(all...).String(), sum.String(), "no CPU is lost")
}

// checkWhole asserts what holds of a pod that has CPUs as a whole.
func (n *node) checkWhole(p *nodePod, whole cpuset.CPUSet) {
	if whole.IsEmpty() {
		return
	}
	require.Equal(n.t, cpus.ExclusiveOfPod(p.pod, true), whole.Size())
	rest, own, shares := whole, 0, false
	for kind, c := range podspec.Containers(&p.pod.Spec) {
		set := n.m.AssignedForTest(p.pod.UID, c.Name)
		require.False(n.t, set.IsEmpty(), "container %s has no CPU", c.Name)
		require.True(n.t, set.IsSubsetOf(whole), "container %s has %s of %s", c.Name, set, whole)
		switch lasts := kind == podspec.MainContainer || podspec.IsSidecar(c); {
		case lasts && cpus.Exclusive(p.pod, c, true) > 0:
			rest = rest.Difference(set)
			own += set.Size()
		case lasts:
			shares = true
		}
	}
	require.Equal(n.t, whole.Size(), own+rest.Size(), "no two containers have a CPU of their own")
	for kind, c := range podspec.Containers(&p.pod.Spec) {
		if (kind == podspec.MainContainer || podspec.IsSidecar(c)) && cpus.Exclusive(p.pod, c, true) == 0 {
			require.Equal(n.t, rest.String(), n.m.AssignedForTest(p.pod.UID, c.Name).String())
		}
	}
	require.False(n.t, shares && rest.IsEmpty())
}

func TestModel(t *testing.T) {
	tb, dir := t, t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		names := [][]string{nil, {cpus.OptionFullPCPUsOnly}, {cpus.OptionDistributeNUMA},
			{cpus.OptionStrictReservation}, {cpus.OptionPreferUncoreCache, cpus.OptionFullPCPUsOnly}, {cpus.OptionDistributeCores}, {cpus.OptionAlignBySocket}}
		n := &node{
			t: t, path: filepath.Join(dir, fmt.Sprint(run)), writes: true, pods: map[types.UID]*nodePod{},
			known: map[types.UID]*v1.Pod{},
			names: rapid.SampledFrom(names).Draw(t, "options"),
			policy: rapid.SampledFrom([]string{topology.PolicyNone, topology.PolicyBestEffort,
				topology.PolicyRestricted, topology.PolicySingleNUMANode}).Draw(t, "policy"),
			scope: rapid.SampledFrom(scopes).Draw(t, "scope"), whole: true,
		}
		n.tree = machines.FS(tb, rapid.SampledFrom([]string{"xeon-2n", "xeon-smt-2n", "opteron865-8n"}).Draw(t,
			"machine"))
		online := strings.TrimSpace(string(n.tree["sys/devices/system/cpu/online"].Data))
		n.start(false)
		some := func(label string) *nodePod {
			if len(n.pods) == 0 {
				t.Skip("no pods")
			}
			var uids []string
			for uid := range n.pods {
				uids = append(uids, string(uid))
			}
			return n.pods[types.UID(rapid.SampledFrom(slices.Sorted(slices.Values(uids))).Draw(t, label))]
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { n.check() },
			"pod": func(t *rapid.T) {
				n.next++
				cpu := rapid.SampledFrom([]string{"1", "2", "4", "6", "1500m"})
				p := testpod.New(fmt.Sprint("p", n.next), testpod.UID(types.UID(fmt.Sprint("p", n.next))),
					testpod.Container(requesting("main", cpu.Draw(t, "main")),
						requesting("other", cpu.Draw(t, "other"))))
				if rapid.Bool().Draw(t, "init") {
					p.Spec.InitContainers = []v1.Container{requesting("init", cpu.Draw(t, "init"))}
					if rapid.Bool().Draw(t, "sidecar") {
						p.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
						p.Spec.InitContainers = append(p.Spec.InitContainers, requesting("last", cpu.Draw(t, "last")))
					}
				}
				if rapid.Bool().Draw(t, "as a whole") {
					makeWhole(t, p)
				}
				if err := n.try(p); err != nil {
					return
				}
				if rapid.IntRange(0, 4).Draw(t, "refused by another component") == 0 {
					n.admitted[p.UID] = false
					n.refused(p)
					return
				}
				n.pods[p.UID] = &nodePod{p, map[string]cpuset.CPUSet{}}
			},
			"run": func(t *rapid.T) {
				p := some("pod")
				_, err := n.admit.Prepare(context.Background(), lifecycle.PrepareRequest{Pod: p.pod})
				if err != nil {
					require.False(t, n.writes)
					return
				}
				for _, c := range append(p.pod.Spec.InitContainers, p.pod.Spec.Containers...) {
					edits, err := n.m.EditContainer(context.Background(), p.pod, &c)
					if err != nil {
						require.True(t, n.m.Shared().IsEmpty(), err)
						continue
					}
					require.NotEmpty(t, edits.CPUSet)
					p.had[c.Name] = n.m.AssignedForTest(p.pod.UID, c.Name)
				}
			},
			"again": func(t *rapid.T) {
				p := some("pod").pod
				n.end(p.UID)
				if err := n.try(p); err == nil {
					n.pods[p.UID] = &nodePod{p, map[string]cpuset.CPUSet{}}
				}
			},
			"end":     func(t *rapid.T) { n.end(some("pod").pod.UID) },
			"gone":    func(t *rapid.T) { p := some("pod"); delete(n.pods, p.pod.UID); n.start(false) }, // while no agent runs
			"disk":    func(*rapid.T) { n.writes = !n.writes },
			"restart": func(*rapid.T) { n.start(false) },
			"settings": func(t *rapid.T) {
				n.scope, n.whole = rapid.SampledFrom(scopes).Draw(t, "scope"), rapid.Bool().Draw(t, "pods as a whole")
				n.start(false)
			},
			"offline": func(t *rapid.T) {
				list := online
				if rapid.Bool().Draw(t, "fewer") {
					list = strings.ReplaceAll(online, "0-", "0-1,4-")
				}
				n.tree["sys/devices/system/cpu/online"] = &fstest.MapFile{Data: []byte(list)}
				n.start(true)
			},
		})
	})
}
