package dra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// stateName is the name of the state in its directory. It is kubelet's.
const stateName = "dra_manager_state"

// Options are the settings of a [Manager].
type Options struct {
	// Slices removes the slices of drivers that are gone. If nil, they stay.
	Slices Slices
	// SlicesDelay is how long a driver may be gone until its slices are removed. Default 30 s, as in kubelet.
	SlicesDelay time.Duration
	// CallTimeout bounds each call of a driver. Default 45 s, as in kubelet.
	CallTimeout time.Duration
	// SkipOperations means that a driver is not called for the operations that all its devices in a claim skip
	// (skipNodeOperations, KEP-5945), and needs not be there for them. Otherwise such a claim is refused.
	SkipOperations bool
}

// Manager has the claims of pods prepared. It joins the life of pods, see package lifecycle. Make one with [New]. It is
// safe for concurrent use.
type Manager struct {
	dir     string // of the state
	claims  Claims
	opts    Options
	node    lifecycle.Node
	log     logr.Logger
	started atomic.Bool

	// file is the state, health the file with the health of devices.
	file, health *checkpoint.File
	locks        locks
	// wake is notified when Run has something new to wait for.
	wake flow.Signal
	// afterUnlock has measurements of the claims in use.
	afterUnlock flow.Queue

	// mu guards the fields below. Nothing is read, written or called under it.
	mu sync.Mutex
	// state is nil until the file is read.
	state *state
	// ready are the pods whose claims are prepared. Their later syncs need nothing.
	ready map[types.UID]bool
	// drivers has the parts of each driver in the order in which they were added.
	drivers map[string][]*Endpoint
	// earlier has the health of devices by driver that an earlier agent was told.
	earlier map[string]map[deviceID]reported
	// removals are the drivers whose slices are to be removed.
	removals   map[string]removal
	unmeasured bool // the claims in use may have changed
	// sweepAt is when pods that are gone are looked for next; zero if that is not decided.
	sweepAt time.Time

	// parts runs what parts of drivers do.
	parts parts
}

var (
	_ lifecycle.Joiner          = (*Manager)(nil)
	_ lifecycle.Preparer        = (*Manager)(nil)
	_ lifecycle.ContainerEditor = (*Manager)(nil)
	_ lifecycle.StoppedHandler  = (*Manager)(nil) // Kubernetes gives claims to others when it sees the phase
	_ lifecycle.EndedHandler    = (*Manager)(nil)
	_ lifecycle.GoneHandler     = (*Manager)(nil)
	_ lifecycle.StatusEditor    = (*Manager)(nil)
	_ lifecycle.Runner          = (*Manager)(nil)
)

// New returns a manager with its state in stateDir, which exists; that of kubelet is /var/lib/kubelet. It reads
// nothing.
func New(stateDir string, claims Claims, opts Options) (*Manager, error) {
	var errs []error
	if stateDir == "" {
		errs = append(errs, errors.New("the directory of the state is empty"))
	}
	if claims == nil {
		errs = append(errs, errors.New("the source of claims is nil"))
	}
	if opts.SlicesDelay < 0 || opts.CallTimeout < 0 {
		errs = append(errs, errors.New("a duration is negative"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("dra: %w", errors.Join(errs...))
	}
	if opts.SlicesDelay == 0 {
		opts.SlicesDelay = 30 * time.Second
	}
	if opts.CallTimeout == 0 {
		opts.CallTimeout = 45 * time.Second
	}
	m := &Manager{
		dir: stateDir, claims: claims, opts: opts, wake: flow.NewSignal(),
		ready: map[types.UID]bool{}, drivers: map[string][]*Endpoint{}, removals: map[string]removal{},
		earlier: map[string]map[deviceID]reported{},
	}
	m.file = checkpoint.New(m.path(stateName), m.restore, m.content)
	m.health = checkpoint.New(m.path(healthName), m.restoreHealth, m.healthContent)
	if opts.Slices != nil {
		m.removals[""] = removal{due: time.Unix(0, 0)} // of all drivers, at once
	}
	return m, m.Join(lifecycle.NopNode{})
}

// Join implements [lifecycle.Joiner]. Statuses of pods are generated again when their devices have changed their
// health, and claims that cannot be prepared are an event FailedPrepareDynamicResources. Gone of the node reports which
// pods of the state have ended: their claims are unprepared.
func (m *Manager) Join(node lifecycle.Node) error {
	m.node, m.log = node, node.Logger()
	return nil
}

// Name implements [lifecycle.Component].
func (m *Manager) Name() string { return "dynamic resources" }

func (m *Manager) path(name string) string { return filepath.Join(m.dir, name) }

// load reads the state, unless it was read. A state that is damaged is set aside.
func (m *Manager) load() error { return m.file.Load() }

func (m *Manager) restore() error {
	var list []ClaimState
	err := checkpoint.Read(&m.file.Reader, m.path(stateName), checkpoint.MaxSize, func(data []byte) (err error) {
		list, err = ParseState(data)
		return err
	})
	if damaged := (*checkpoint.DamagedError)(nil); errors.As(err, &damaged) {
		aside, renameErr := checkpoint.SetAside(m.path(stateName))
		if renameErr == nil {
			m.log.Error(err, "The state of dynamic resources is damaged and was set aside; claims of pods "+
				"that run are prepared again, and drivers may keep those of pods that are gone", "path", aside)
		}
		err = renameErr
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the state of dynamic resources: %w", err)
	}
	if err := m.health.Load(); err != nil {
		m.log.Error(err, "The health of devices is Unknown until their drivers report it")
	}
	s := newState(m.file.Changed)
	for _, c := range list {
		s.claims[c.key()] = &claimState{ClaimState: c}
		for _, pod := range c.Pods {
			s.index(pod, c.key())
		}
	}
	m.mu.Lock()
	m.state = s
	m.mu.Unlock()
	m.wake.Notify()
	return nil
}

// content returns the content of the file.
func (m *Manager) content() ([]byte, error) {
	m.mu.Lock()
	list := m.state.list()
	m.mu.Unlock()
	return FormatState(list), nil
}

// EditContainer returns the CDI names of the devices that the container may use. It implements
// [lifecycle.ContainerEditor].
func (m *Manager) EditContainer(_ context.Context, pod *v1.Pod,
	container *v1.Container) (runtime.ContainerEdits, error) {
	none := runtime.ContainerEdits{}
	if !hasClaims(pod) {
		return none, nil
	}
	list, err := m.ContainerClaims(pod, container)
	if err != nil {
		return none, err
	}
	var names []string
	seen := map[string]bool{}
	for _, c := range list {
		for _, d := range c.Devices {
			for _, name := range d.CDIDevices {
				if !seen[name] {
					seen[name] = true
					names = append(names, name)
				}
			}
		}
	}
	return runtime.ContainerEdits{CDIDevices: names}, nil
}
