package podworkers

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// model is a simple view of the pods: the wishes of their users, and the calls that were
// made. It drives machines as Workers does, with calls that return
// whenever and however the test likes.
type model struct {
	*rapid.T
	now      time.Time
	machines *machines
	pods     map[types.UID]*modelPod
	uids     []types.UID
}

// modelPod is what the model knows of one UID.
type modelPod struct {
	fullName string // "" for API pods
	run      bool   // the user wants it to run, maybe after the present incarnation
	mustEnd  bool   // the present incarnation was asked to end
	orphan   bool   // it is an orphan
	killed   bool   // an orphan's pod was killed too
	deleted  bool   // its spec is marked as deleted
	failed   bool   // the present incarnation has failed for good
	status   bool   // the present incarnation was killed with a status of the kill

	inFlight  *call
	cancelled bool
	kind      callKind // last in this incarnation
	grace     int64    // last in this incarnation, 0: none yet
	holds     bool     // something of it may be running
	synced    bool     // it was synced in this incarnation
	told      bool     // and the syncer got Create
	dones     []*int
}

func (m *model) update(uid types.UID, u Update) {
	p, before := m.pods[uid], m.machines.state(uid)
	if u.Type == Kill {
		if u.Kill == nil {
			u.Kill = &KillOptions{}
		}
		n := new(int)
		u.Kill.Done = func() { *n++ }
		p.dones = append(p.dones, n)
	}
	require.NoError(m, u.validate())
	ends := u.Pod != nil && (u.Pod.DeletionTimestamp != nil || podspec.IsPhaseTerminal(u.Pod.Status.Phase))
	if m.machines.drained && u.Type != Kill && !ends && (u.Type == Create || !before.Known()) {
		m.apply(uid, updated{Update: u})
		require.Equal(m, before, m.machines.state(uid), "%s is not to begin", uid)
		return
	}
	if u.Kill != nil && u.Kill.Status != nil && !p.failed && (u.Pod == nil || !p.orphan) &&
		before.Phase < PhaseTerminated {
		p.status = true
	}

	switch {
	case u.Pod == nil && !before.Known():
		p.run, p.orphan, p.mustEnd = false, true, true
	case u.Pod == nil:
		if !before.TerminationRequested() {
			p.run, p.mustEnd = false, true
		}
	case u.Type == Kill:
		p.killed = p.orphan
		if !before.Finished {
			p.run, p.mustEnd = false, true
		}
	case u.Type == Create:
		p.run, p.killed = !ends, false
		p.mustEnd = p.mustEnd || ends
	case before.Finished, p.killed:
	case ends:
		p.run, p.mustEnd = false, true
	case !before.Known() || p.orphan:
		p.run = true
	}
	m.apply(uid, updated{Update: u})
}

func (m *model) apply(uid types.UID, ev any) {
	fx, _ := m.machines.apply(m.now, uid, ev)
	p := m.pods[uid]
	if fx.cancel != nil {
		require.NotNil(m, p.inFlight, "cancelled, but nothing is under way")
		require.False(m, p.cancelled, "cancelled twice")
		p.cancelled = true
	}
	if len(fx.done) > 0 {
		require.True(m, p.inFlight == nil || p.inFlight.kind == callTerminated, "done while it is being stopped")
	}
	for _, f := range fx.done {
		f()
	}
	for uid := range m.pods {
		m.take(uid)
	}
}

func (m *model) take(uid types.UID) {
	c, ok := m.machines.take(m.now, uid)
	if !ok {
		return
	}
	p := m.pods[uid]
	require.Nil(m, p.inFlight, "two calls for %s", uid)
	require.GreaterOrEqual(m, c.kind, p.kind, "%s went back", uid)
	p.inFlight, p.kind, p.cancelled = &c, c.kind, false
	switch c.kind {
	case callSync:
		require.Equal(m, !p.told, c.typ == Create)
		first := !p.synced
		require.False(m, first && m.machines.drained, "%s was started although the workers are drained", uid)
		p.synced, p.told = true, true
		require.False(m, p.mustEnd, "%s is to end, but was synced", uid)
		require.True(m, p.run, "%s is not wanted, but was synced", uid)
		for other, o := range m.pods {
			if other != uid && p.fullName != "" && o.fullName == p.fullName {
				require.False(m, o.synced, "%s was synced beside %s", uid, other)
				require.False(m, o.holds && first, "%s was started beside %s", uid, other)
			}
		}
	case callTerminating, callOrphan:
		require.Equal(m, p.orphan, c.kind == callOrphan)
		if !p.orphan {
			require.Equal(m, p.failed, status(c).Reason == "Denied", "%s: the status of a failure", uid)
		}
		if g := c.term.GracePeriod; g != nil {
			require.Positive(m, *g)
			require.True(m, p.grace == 0 || *g <= p.grace, "the grace period of %s grew from %d to %d", uid, p.grace,
				*g)
			p.grace = *g
		} else {
			require.True(m, p.orphan && p.grace == 0)
		}
	}
	p.holds = p.holds || c.kind != callTerminated
}

// finish lets the call of the pod return.
func (m *model) finish(uid types.UID, r returned) {
	p := m.pods[uid]
	c := *p.inFlight
	p.inFlight = nil
	if c.kind == callSync {
		p.told = p.told && (!r.unread || c.typ != Create)
		if r.failure() != nil {
			p.run, p.mustEnd = p.run && p.mustEnd, true
			p.failed = !p.status
		}
	}
	if r.err == nil {
		switch c.kind {
		case callSync:
			if r.Terminal && !p.mustEnd {
				p.run, p.mustEnd = false, true
			}
		case callTerminating:
			if m.machines.pods[uid].startedAt.IsZero() && !m.machines.pods[uid].end.outdated {
				p.holds = false
			}
		case callTerminated, callOrphan:
			p.holds, p.synced, p.told, p.kind, p.grace = false, false, false, noCall, 0
			p.failed, p.status = false, false
			p.mustEnd = p.killed
			p.orphan, p.killed = false, false
		}
	}
	m.apply(uid, r)
}

// settle lets everything succeed until nothing but resyncs is due.
func (m *model) settle() {
	for range 1000 {
		busy := false
		for _, uid := range m.uids {
			if m.pods[uid].inFlight != nil {
				m.finish(uid, returned{})
				busy = true
			}
			if mc := m.machines.pods[uid]; mc.phase > PhaseSync && !mc.finished {
				busy = true
			}
		}
		if !busy {
			return
		}
		m.now = m.now.Add(11 * time.Second)
		for _, uid := range m.uids {
			m.take(uid)
		}
	}
	m.Fatal("it does not come to rest")
}

func (m *model) list(desired map[types.UID]bool) {
	for _, uid := range m.uids {
		p, before := m.pods[uid], m.machines.state(uid)
		m.apply(uid, compared{desired: desired[uid]})
		switch after := m.machines.state(uid); {
		case desired[uid]:
			require.Equal(m, before.Known(), after.Known(), "%s is desired", uid)
		case before.Finished:
			require.False(m, after.Known(), "%s was not forgotten", uid)
		case before.Known():
			require.True(m, after.TerminationRequested())
			p.run, p.mustEnd = false, true
		}
	}
}

func TestMachinesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, now: time.Unix(1000, 0), machines: newMachines(testPolicy), pods: map[types.UID]*modelPod{}}
		m.uids = []types.UID{"s1", "s2", "s3", "other", "api"}
		spec := map[types.UID]*v1.Pod{}
		for _, uid := range m.uids {
			spec[uid] = staticPod(uid, "same")
			switch uid {
			case "other":
				spec[uid] = staticPod(uid, "other")
			case "api":
				spec[uid] = apiPod(uid, "same")
			}
			m.pods[uid] = &modelPod{}
			if uid != "api" {
				m.pods[uid].fullName = spec[uid].Name
			}
		}
		anyUID := rapid.SampledFrom(m.uids)
		anyGrace := rapid.Int64Range(0, 40)
		// A spec that was marked as deleted stays so until the pod is created anew.
		specOf := func(t *rapid.T, uid types.UID, p *modelPod) *v1.Pod {
			if p.deleted || rapid.IntRange(0, 9).Draw(t, "deleted") == 0 {
				p.deleted = true
				return testpod.With(spec[uid], testpod.Deleted(anyGrace.Draw(t, "deletion grace")))
			}
			return spec[uid]
		}
		kill := func(t *rapid.T) *KillOptions {
			k := &KillOptions{Evict: rapid.Bool().Draw(t, "evict")}
			if rapid.Bool().Draw(t, "with grace") {
				k.GracePeriod = new(anyGrace.Draw(t, "grace"))
			}
			if rapid.Bool().Draw(t, "with status") {
				k.Status = func(*v1.PodStatus) {}
			}
			return k
		}

		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				uid := anyUID.Draw(t, "uid")
				m.pods[uid].deleted = m.pods[uid].deleted && m.machines.drained
				m.update(uid, Update{Type: Create, Pod: specOf(t, uid, m.pods[uid])})
			},
			"update": func(t *rapid.T) {
				uid := anyUID.Draw(t, "uid")
				m.update(uid, Update{Type: rapid.SampledFrom([]UpdateType{Change, Sync}).Draw(t, "type"),
					Pod: specOf(t, uid, m.pods[uid])})
			},
			"kill": func(t *rapid.T) {
				uid := anyUID.Draw(t, "uid")
				m.update(uid, Update{Type: Kill, Pod: specOf(t, uid, m.pods[uid]), Kill: kill(t)})
			},
			"kill orphan": func(t *rapid.T) {
				uid := anyUID.Draw(t, "uid")
				m.update(uid, Update{Type: Kill, Orphan: orphan(uid, spec[uid].Name), Kill: kill(t)})
			},
			"drain": func(t *rapid.T) {
				m.machines.drained = m.machines.drained || rapid.IntRange(0, 9).Draw(t, "drained") == 0
			},
			"list": func(t *rapid.T) {
				desired := map[types.UID]bool{}
				for _, uid := range m.uids {
					desired[uid] = rapid.IntRange(0, 4).Draw(t, "desired") > 0
				}
				m.list(desired)
			},
			"return": func(t *rapid.T) {
				uid := anyUID.Draw(t, "uid")
				p := m.pods[uid]
				if p.inFlight == nil {
					t.Skip("nothing under way")
				}
				r := returned{jitter: rapid.Float64Range(0, 0.99).Draw(t, "jitter")}
				if rapid.Bool().Draw(t, "fails") {
					r.err = rapid.SampledFrom([]error{errors.New("no"), errRefused}).Draw(t, "error")
					r.unread = rapid.IntRange(0, 4).Draw(t, "unread") == 0
				}
				if p.inFlight.kind == callSync {
					r.Terminal = rapid.IntRange(0, 4).Draw(t, "terminal") == 0
					r.Changed = rapid.Bool().Draw(t, "changed")
				}
				m.finish(uid, r)
			},
			"wait": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.Int64Range(1, 70_000).Draw(t, "ms")) * time.Millisecond)
				for _, uid := range m.uids {
					m.take(uid)
				}
			},
			"": func(t *rapid.T) {
				for uid, p := range m.pods {
					for _, n := range p.dones {
						require.LessOrEqual(t, *n, 1, "Done of %s called twice", uid)
					}
					require.Equal(t, p.orphan, m.machines.pods[uid].orphan != nil)
					if s := m.machines.state(uid); !s.Finished {
						require.Equal(t, p.failed, s.Failure != nil, "%s: the failure in its state", uid)
					}
				}
			},
		})

		m.settle()
		running := map[string]types.UID{}
		for _, uid := range m.uids {
			p, s := m.pods[uid], m.machines.state(uid)
			for _, n := range p.dones {
				require.Equal(t, 1, *n, "a kill of %s was lost", uid)
			}
			if !p.run {
				require.True(t, !s.Known() || s.Finished, "%s is to end but does not: %+v", uid, s)
				continue
			}
			require.Equal(t, PhaseSync, s.Phase, "%s is to run", uid)
			require.False(t, s.TerminationRequested(), "%s is to run", uid)
			if !s.StartedAt.IsZero() && p.fullName != "" {
				require.Empty(t, running[p.fullName], "two pods of one name")
				running[p.fullName] = uid
			}
		}
		for _, uid := range m.uids {
			if p, s := m.pods[uid], m.machines.state(uid); p.run && s.StartedAt.IsZero() && !m.machines.drained {
				require.True(t, s.Waiting, "%s does not start", uid)
				require.NotEmpty(t, running[p.fullName], "%s waits for nobody", uid)
			}
		}

		for range 3 {
			m.list(nil)
			m.settle()
		}
		require.Empty(t, m.machines.pods, "records are left")
		require.Empty(t, m.machines.names, "names are left")
	})
}
