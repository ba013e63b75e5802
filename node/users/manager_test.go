package users

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// node is a directory of pods with what is known about its machine.
type node struct {
	t       require.TestingT
	podsDir string
	opts    Options
	log     []string
}

func newNode(t *testing.T) *node {
	n := &node{t: t, podsDir: t.TempDir()}
	n.opts = Options{
		InUse: func() ([]Range, error) { return nil, nil },
	}
	return n
}

func (n *node) manager() *Manager {
	m, err := New(n.podsDir, n.opts)
	require.NoError(n.t, err)
	require.NoError(n.t, m.Join(&nodefake.Node{
		Log: funcr.New(func(_, args string) { n.log = append(n.log, args) }, funcr.Options{})}))
	return m
}

func (n *node) dir(uid types.UID) string { return filepath.Join(n.podsDir, string(uid)) }

func (n *node) record(uid types.UID, content string) {
	require.NoError(n.t, os.MkdirAll(n.dir(uid), 0o700))
	require.NoError(n.t, os.WriteFile(filepath.Join(n.dir(uid), "userns"), []byte(content), 0o600))
}

// prepare prepares the pod, and returns the user namespace of its containers.
func (n *node) prepare(m *Manager, uid types.UID, observed *runtime.PodStatus) (Range, error) {
	require.NoError(n.t, os.MkdirAll(n.dir(uid), 0o700))
	pod := podOf(uid)
	_, err := m.Prepare(ctxOf(n.t), lifecycle.PrepareRequest{Pod: pod, Observed: observed, Dir: n.dir(uid)})
	if err != nil {
		return Range{}, err
	}
	box, err := m.EditSandbox(ctxOf(n.t), pod)
	require.NoError(n.t, err)
	container, err := m.EditContainer(ctxOf(n.t), pod, nil)
	require.NoError(n.t, err)
	require.Equal(n.t, box.UserNamespace, container.UserNamespace)
	own, err := rangeOf(box.UserNamespace)
	require.NoError(n.t, err)
	known, ok := m.RangeOf(uid)
	require.True(n.t, ok)
	require.Equal(n.t, own, known)
	data, err := os.ReadFile(filepath.Join(n.dir(uid), "userns"))
	require.NoError(n.t, err)
	require.Equal(n.t, string(FormatRecord(own)), string(data))
	return own, nil
}

func podOf(uid types.UID) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + string(uid), Namespace: "default", UID: uid},
		Spec:       v1.PodSpec{HostUsers: new(false), Containers: []v1.Container{{Name: "c"}}},
	}
}

// runs is a pod with a ready sandbox; of the range, if it is not zero.
func runs(own Range) *runtime.PodStatus {
	box := runtime.SandboxStatus{Sandbox: runtime.Sandbox{ID: "s", State: runtime.SandboxReady}}
	if own != (Range{}) {
		box.UserNamespace = namespace(own)
	}
	return &runtime.PodStatus{Sandboxes: []runtime.SandboxStatus{box}}
}

func TestNew(t *testing.T) {
	for name, tc := range map[string]struct {
		opts    Options
		wantErr string
	}{
		"defaults":        {},
		"longer ranges":   {opts: Options{IDsPerPod: 3 * Unit}},
		"half of the IDs": {opts: Options{IDsPerPod: idSpace / 2}},
		"negative":        {opts: Options{IDsPerPod: -Unit}, wantErr: "-65536 IDs for each pod are not a multiple of 65536 up to 2147483648"},
		"too few":         {opts: Options{IDsPerPod: 1}, wantErr: "1 IDs for each pod are"},
		"too many":        {opts: Options{IDsPerPod: idSpace}, wantErr: "4294967296 IDs for each pod are"},
		"not multiples":   {opts: Options{IDsPerPod: 70000}, wantErr: "70000 IDs for each pod are"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New("/pods", tc.opts)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
		})
	}
	_, err := New("", Options{IDsPerPod: 1})
	require.EqualError(t, err, "users: the directory of the pods is empty\n1 IDs for each pod are not a multiple of "+
		"65536 up to 2147483648")
}

func TestPool(t *testing.T) {
	for name, tc := range map[string]struct {
		pool    Range
		opts    Options
		size    int
		wantErr string
	}{
		"all IDs":              {size: 65535},
		"longer ranges":        {opts: Options{IDsPerPod: 3 * Unit}, size: 21844},
		"subordinate IDs":      {pool: Range{Unit, 110 * Unit}, opts: Options{MaxPods: 110}, size: 110},
		"too few IDs":          {pool: Range{Unit, 109 * Unit}, opts: Options{MaxPods: 110}, wantErr: "has ranges for 109 pods, but the node may have 110"},
		"of another shape":     {pool: Range{100000, Unit}, wantErr: "100000, is not a multiple of 65536"},
		"half of the IDs":      {opts: Options{IDsPerPod: idSpace / 2}, size: 1},
		"those of the kubelet": {pool: Range{Unit, 3 * Unit}, opts: Options{IDsPerPod: 2 * Unit}, wantErr: "is less than 131072"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tc.opts.InUse = n.opts.InUse
			n.opts = tc.opts
			n.opts.Pool = func(context.Context) (Range, error) { return tc.pool, nil }
			m := n.manager()
			_, err := n.prepare(m, "a", nil)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.size, m.ranges.Size())
		})
	}
}

// Without a pool, pods wait.
func TestPoolLater(t *testing.T) {
	n := newNode(t)
	failure := errors.New("getsubids: no answer")
	n.opts.Pool = func(context.Context) (Range, error) { return Range{Unit, Unit}, failure }
	m := n.manager()
	_, err := n.prepare(m, "a", nil)
	require.EqualError(t, err, "user namespace of pod default/pod-a(a): getsubids: no answer")
	_, has := m.RangeOf("a")
	assert.False(t, has)
	require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: podOf("b"), Dir: n.dir("b")}))
	failure = nil
	_, err = n.prepare(m, "a", nil)
	require.NoError(t, err)
}

// The record is that of kubelet, to the byte.
func TestRecordFormat(t *testing.T) {
	const text = `{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`
	assert.Equal(t, text, string(FormatRecord(Range{2 * Unit, Unit})))
	own, err := ParseRecord([]byte(text))
	require.NoError(t, err)
	assert.Equal(t, Range{2 * Unit, Unit}, own)
}

func TestBadRecords(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"no JSON":       {"{", "unexpected end of JSON input"},
		"empty object":  {"{}", "it has 0 mappings of users and 0 of groups, not one of each"},
		"a negative ID": {`{"uidMappings":[{"hostId":-1}]}`, "cannot unmarshal number -1"},
		"a large ID":    {`{"uidMappings":[{"hostId":4294967296}]}`, "cannot unmarshal number 4294967296"},
		"two mappings":  {`{"uidMappings":[{},{}],"gidMappings":[{},{}]}`, "it has 2 mappings of users"},
		"others":        {`{"uidMappings":[{"hostId":65536,"length":65536}],"gidMappings":[{"hostId":131072,"length":65536}]}`, "differ"},
		"no root":       {`{"uidMappings":[{"hostId":65536,"containerId":1,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":1,"length":65536}]}`, "begins at 1"},
		"users of the host": {`{"uidMappings":[{"hostId":0,"containerId":0,"length":65536}],"gidMappings":[{"hostId":0,"containerId":0,"length":65536}]}`,
			"the range 0-65535 has IDs below 65536"},
		"no IDs":        {`{"uidMappings":[{"hostId":65536}],"gidMappings":[{"hostId":65536}]}`, "the range has no IDs"},
		"IDs that wrap": {`{"uidMappings":[{"hostId":4294901760,"length":131072}],"gidMappings":[{"hostId":4294901760,"length":131072}]}`, "has IDs above"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseRecord([]byte(tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(FormatRecord(Range{Unit, Unit}))
	f.Add([]byte(`{"uidMappings":[{"hostId":65536,"length":65536}],"gidMappings":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		own, err := ParseRecord(data)
		if err != nil {
			return
		}
		require.NoError(t, own.check())
		again, err := ParseRecord(FormatRecord(own))
		require.NoError(t, err)
		require.Equal(t, own, again)
	})
}

// A pod has its range until it has ended, also when the agent is restarted.
func TestRangeOfAPod(t *testing.T) {
	n := newNode(t)
	m := n.manager()
	a, err := n.prepare(m, "a", nil)
	require.NoError(t, err)
	assert.Equal(t, Range{Unit, Unit}, a)
	b, err := n.prepare(m, "b", nil)
	require.NoError(t, err)
	assert.Equal(t, Range{2 * Unit, Unit}, b)
	again, err := n.prepare(m, "a", runs(a))
	require.NoError(t, err)
	assert.Equal(t, a, again)

	m = n.manager()
	c, err := n.prepare(m, "c", nil)
	require.NoError(t, err)
	assert.Equal(t, Range{3 * Unit, Unit}, c, "those of a and b are restored first")
	again, err = n.prepare(m, "b", runs(b))
	require.NoError(t, err)
	assert.Equal(t, b, again)

	require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: podOf("a"), Dir: n.dir("a")}))
	require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: podOf("a"), Dir: n.dir("a")}), "again")
	assert.NoFileExists(t, filepath.Join(n.dir("a"), "userns"))
	require.NoError(t, m.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.PodRef{UID: "a"}, Dir: n.dir("a")}))
	require.NoError(t, m.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.PodRef{UID: "b"}, Dir: n.dir("b")}))
	assert.NoFileExists(t, filepath.Join(n.dir("b"), "userns"))
	_, has := m.RangeOf("b")
	assert.False(t, has)
	assert.Empty(t, n.log)
}

// A pod that shares the users of the host has nothing read, and no directory.
func TestOtherPods(t *testing.T) {
	n := newNode(t)
	n.opts.InUse = func() ([]Range, error) { t.Error("processes are read"); return nil, nil }
	m := n.manager()
	for _, users := range []*bool{nil, new(true)} {
		pod := podOf("a")
		pod.Spec.HostUsers = users
		dir := filepath.Join(n.podsDir, "missing")
		_, err := m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod, Dir: dir})
		require.NoError(t, err)
		box, err := m.EditSandbox(t.Context(), pod)
		require.NoError(t, err)
		assert.Zero(t, box)
		container, err := m.EditContainer(t.Context(), pod, &pod.Spec.Containers[0])
		require.NoError(t, err)
		assert.Zero(t, container)
		require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: pod, Dir: dir}))
		require.NoError(t, m.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.RefOf(pod), Dir: dir}))
		_, err = m.Admit(lifecycle.AdmitRequest{Pod: pod})
		require.NoError(t, err)
	}
	pod := &v1.Pod{}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		_, _ = m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod})
	}))
	_, err := m.EditSandbox(t.Context(), podOf("a"))
	require.EqualError(t, err, "pod default/pod-a(a) has no range of user IDs: it was not prepared")
}

const damaged = `{"uidMappings":[`

func TestRestored(t *testing.T) {
	at := func(first uint32) string { return string(FormatRecord(Range{first, Unit})) }
	for name, tc := range map[string]struct {
		records  map[types.UID]string
		inUse    []Range
		observed *runtime.PodStatus
		want     Range
		wantErr  string
		wantLog  string
	}{
		"nothing":                        {want: Range{Unit, Unit}},
		"its record":                     {records: map[types.UID]string{"pod": at(7 * Unit)}, want: Range{7 * Unit, Unit}},
		"its record, and it runs":        {records: map[types.UID]string{"pod": at(7 * Unit)}, observed: runs(Range{7 * Unit, Unit}), want: Range{7 * Unit, Unit}},
		"its record, unreported":         {records: map[types.UID]string{"pod": at(7 * Unit)}, observed: runs(Range{}), want: Range{7 * Unit, Unit}},
		"a record of another length":     {records: map[types.UID]string{"pod": string(FormatRecord(Range{10 * Unit, 2 * Unit}))}, want: Range{10 * Unit, 2 * Unit}},
		"an empty record":                {records: map[types.UID]string{"pod": ""}, want: Range{Unit, Unit}},
		"records of others":              {records: map[types.UID]string{"a": at(Unit), "b": at(3 * Unit)}, want: Range{2 * Unit, Unit}},
		"processes of others":            {inUse: []Range{{0, 1}, {1000, 1}, {100000, 65536}}, want: Range{3 * Unit, Unit}},
		"a lost record of a running pod": {inUse: []Range{{Unit, Unit}}, observed: runs(Range{Unit, Unit}), want: Range{Unit, Unit}, wantLog: "missing or wrong"},
		"the sandbox has another range":  {records: map[types.UID]string{"pod": at(7 * Unit)}, observed: runs(Range{9 * Unit, Unit}), want: Range{9 * Unit, Unit}, wantLog: "missing or wrong"},
		"damaged, and nothing runs":      {records: map[types.UID]string{"pod": damaged}, want: Range{Unit, Unit}, wantLog: "cannot be used"},
		"damaged, but reported":          {records: map[types.UID]string{"pod": damaged}, observed: runs(Range{5 * Unit, Unit}), want: Range{5 * Unit, Unit}, wantLog: "cannot be used"},
		"damaged, and unreported": {records: map[types.UID]string{"pod": damaged}, observed: runs(Range{}), wantLog: "cannot be used",
			wantErr: "user namespace of pod default/pod-pod(pod): the record of the user namespace cannot be used: " +
				"PODS/pod/userns: unexpected end of JSON input; the pod runs, and the runtime does not report its " +
				"range: repair the file, or remove the pod"},
		"damaged, of another pod": {records: map[types.UID]string{"a": damaged}, want: Range{Unit, Unit}, wantLog: "cannot be used"},
		"a large record":          {records: map[types.UID]string{"pod": strings.Repeat(" ", 5000)}, want: Range{Unit, Unit}, wantLog: "larger than the limit"},
		"that of another pod":     {records: map[types.UID]string{"a": at(Unit), "pod": at(Unit)}, want: Range{2 * Unit, Unit}, wantLog: "overlaps with 65536-131071 of pod a"},
		"that of another pod, it runs": {records: map[types.UID]string{"a": at(Unit), "pod": at(Unit)}, observed: runs(Range{}), wantLog: "overlaps",
			wantErr: "user namespace of pod default/pod-pod(pod): the range 65536-131071 overlaps with 65536-131071 " +
				"of pod a; containers that run continue to run, but none is started: remove one of the two pods"},
		"a record of another pod, reported": {records: map[types.UID]string{"a": at(Unit), "pod": at(Unit)}, observed: runs(Range{Unit, Unit}), want: Range{Unit, Unit}, wantLog: "overlaps"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.opts.InUse = func() ([]Range, error) { return tc.inUse, nil }
			for uid, text := range tc.records {
				n.record(uid, text)
			}
			own, err := n.prepare(n.manager(), "pod", tc.observed)
			if tc.wantErr != "" {
				require.EqualError(t, err, strings.ReplaceAll(tc.wantErr, "PODS", n.podsDir))
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, tc.want, own)
			if tc.wantLog == "" {
				assert.Empty(t, n.log)
			} else {
				assert.Contains(t, strings.Join(n.log, "\n"), tc.wantLog)
			}
		})
	}
}

// The pod that has lost its range to one with a sandbox gets another one, also if both are in the same agent.
func TestTheLoserGetsAnother(t *testing.T) {
	n := newNode(t)
	n.record("a", string(FormatRecord(Range{Unit, Unit})))
	m := n.manager()
	b, err := n.prepare(m, "b", runs(Range{Unit, Unit}))
	require.NoError(t, err)
	a, err := n.prepare(m, "a", nil)
	require.NoError(t, err)
	assert.False(t, a.overlaps(b))

	_, err = n.prepare(m, "c", runs(a))
	require.ErrorContains(t, err, "overlaps with 131072-196607 of pod a")
}

// What cannot be written is tried again, with the same range.
func TestUnwritableRecord(t *testing.T) {
	n := newNode(t)
	m := n.manager()
	for range 2 {
		_, err := m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: podOf("a"), Dir: n.dir("a")})
		require.ErrorContains(t, err, "user namespace of pod default/pod-a(a): writing its record")
	}
	own, err := n.prepare(m, "a", nil)
	require.NoError(t, err)
	assert.Equal(t, Range{Unit, Unit}, own)
}

func TestUnknownProcesses(t *testing.T) {
	n := newNode(t)
	n.opts.InUse = func() ([]Range, error) { return nil, errors.New("no /proc") }
	_, err := n.prepare(n.manager(), "a", nil)
	require.NoError(t, err)
	assert.Contains(t, strings.Join(n.log, "\n"), "no /proc")
}

func TestExhausted(t *testing.T) {
	n := newNode(t)
	n.opts.Pool = func(context.Context) (Range, error) { return Range{Unit, Unit}, nil }
	m := n.manager()
	_, err := n.prepare(m, "a", nil)
	require.NoError(t, err)
	_, err = n.prepare(m, "b", nil)
	require.ErrorIs(t, err, ErrExhausted)
	assert.ErrorContains(t, err, "remove pods with hostUsers: false, or give the pool more IDs")
	require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: podOf("a"), Dir: n.dir("a")}))
	_, err = n.prepare(m, "b", nil)
	require.NoError(t, err)
}

// A record that cannot be removed keeps the range.
func TestUnremovableRecord(t *testing.T) {
	n := newNode(t)
	m := n.manager()
	_, err := n.prepare(m, "a", nil)
	require.NoError(t, err)
	path := filepath.Join(n.dir("a"), "userns")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.MkdirAll(filepath.Join(path, "x"), 0o700))
	require.ErrorContains(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: podOf("a"), Dir: n.dir("a")}),
		"returning the user IDs of pod a")
	_, has := m.RangeOf("a")
	assert.True(t, has)
}

// The pods of a directory that cannot be read wait, and go on when it can.
func TestUnreadableDirectory(t *testing.T) {
	n := newNode(t)
	m := n.manager()
	real := n.podsDir
	m.podsDir = filepath.Join(real, "file")
	require.NoError(t, os.WriteFile(m.podsDir, nil, 0o600))
	_, err := n.prepare(m, "a", nil)
	require.Error(t, err)
	m.podsDir = real
	_, err = n.prepare(m, "a", nil)
	require.NoError(t, err)
}
