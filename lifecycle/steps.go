package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Steps calls the components of an agent, step by step. The parts that know when a step is due
// call it: the sync loop for Admit and Gone, the pod syncer for the others. A nil *Steps has no components. It
// is safe for concurrent use.
type Steps struct {
	admit     []Admitter
	refused   []RefusalHandler // in the reverse order
	prepare   []joined[Preparer]
	sandbox   []SandboxEditor
	container []ContainerEditor
	running   []joined[RunningHandler]
	stopped   []joined[StoppedHandler] // in the reverse order
	ended     []joined[EndedHandler]   // in the reverse order
	gone      []GoneHandler            // in the reverse order
	status    []StatusEditor
	runners   []Runner
	postponed postponed
	first     atomic.Pointer[first] // nil if no pod is to be prepared first
}

// joined is a component in a step, and the name of the step while it is under way.
type joined[C Component] struct {
	component C
	step      *underway.Step
}

func join[C Component](c C, step string) joined[C] {
	return joined[C]{c, &underway.Step{Name: nameOf(c, step)}}
}

// nameOf is the name of the step of a component while it is under way.
func nameOf(c Component, step string) string { return "component " + c.Name() + ", step " + step }

// New returns the steps that the components join, in the order of [Sort]. Its error is that of Sort, and names each
// component that is nil, has no name or the name of another one, or joins no step.
func New(components ...Component) (*Steps, error) {
	s := &Steps{}
	var errs []error
	components, err := Sort(components...)
	if err != nil {
		errs = append(errs, err)
	}
	names := map[string]bool{}
	for _, c := range components {
		if c == nil {
			errs = append(errs, errors.New("lifecycle: a component is nil"))
			continue
		}
		name := c.Name()
		switch joined := s.join(c); {
		case name == "":
			errs = append(errs, fmt.Errorf("lifecycle: a component, a %T, has no name", c))
		case names[name]:
			errs = append(errs, fmt.Errorf("lifecycle: two components have the name %q", name))
		case !joined:
			errs = append(errs,
				fmt.Errorf("lifecycle: component %q, a %T, joins no step: it implements none of the interfaces", name,
					c))
		}
		names[name] = true
	}
	slices.Reverse(s.refused)
	slices.Reverse(s.stopped)
	slices.Reverse(s.ended)
	slices.Reverse(s.gone)
	return s, errors.Join(errs...)
}

// join adds the component to the steps that it implements, and reports whether there is one.
func (s *Steps) join(c Component) (joined bool) {
	add := func(ok bool, list func()) {
		if ok {
			list()
			joined = true
		}
	}
	admitter, ok := c.(Admitter)
	add(ok, func() { s.admit = append(s.admit, admitter) })
	refusals, ok := c.(RefusalHandler)
	add(ok, func() { s.refused = append(s.refused, refusals) })
	preparer, ok := c.(Preparer)
	add(ok, func() { s.prepare = append(s.prepare, join(preparer, "Prepare")) })
	sandbox, ok := c.(SandboxEditor)
	add(ok, func() { s.sandbox = append(s.sandbox, sandbox) })
	container, ok := c.(ContainerEditor)
	add(ok, func() { s.container = append(s.container, container) })
	running, ok := c.(RunningHandler)
	add(ok, func() { s.running = append(s.running, join(running, "Running")) })
	stopped, ok := c.(StoppedHandler)
	add(ok, func() { s.stopped = append(s.stopped, join(stopped, "Stopped")) })
	ended, ok := c.(EndedHandler)
	add(ok, func() { s.ended = append(s.ended, join(ended, "Ended")) })
	gone, ok := c.(GoneHandler)
	add(ok, func() { s.gone = append(s.gone, gone) })
	editor, ok := c.(StatusEditor)
	add(ok, func() { s.status = append(s.status, editor) })
	_, ok = c.(InspectionWrapper)
	joined = joined || ok
	runner, ok := c.(Runner)
	add(ok, func() { s.runners = append(s.runners, runner) })
	_, joins := c.(Joiner)
	_, reports := c.(NodeStatusHandler)
	_, checks := c.(NodeReadyChecker)
	_, follows := c.(StatusHandler)
	return joined || joins || reports || checks || follows
}

// Inspector returns the inspector with what the components add that are an [InspectionWrapper]: the first component is
// the innermost.
func Inspector(inner runtime.Inspector, components ...Component) runtime.Inspector {
	for _, c := range components {
		if w, ok := c.(InspectionWrapper); ok {
			inner = w.Inspector(inner)
		}
	}
	return inner
}

// Runners returns the components with work of their own. The agent runs them.
func (s *Steps) Runners() []Runner {
	if s == nil {
		return nil
	}
	return s.runners
}

// ComponentError is the error of a component. Those of [Steps] wrap one.
type ComponentError struct {
	// Component is its name.
	Component string
	Err       error
}

func (e *ComponentError) Error() string { return e.Component + ": " + e.Err.Error() }
func (e *ComponentError) Unwrap() error { return e.Err }

// call calls a component, and turns a panic into an error.
func call(c Component, step func() error) error {
	if err := runtime.Recover(step); err != nil {
		return &ComponentError{c.Name(), err}
	}
	return nil
}

// Name is the name of the steps as an [Admitter].
func (s *Steps) Name() string { return "components" }

// Admit calls each [Admitter] until one refuses the pod. The response has what all of them would evict.
func (s *Steps) Admit(req AdmitRequest) (AdmitResponse, error) {
	var all AdmitResponse
	if s == nil {
		return all, nil
	}
	for _, c := range s.admit {
		err := call(c, func() error {
			r, err := c.Admit(req)
			all.Evict = append(all.Evict, r.Evict...)
			return err
		})
		if refusal := (*runtime.TerminalError)(nil); errors.As(err, &refusal) {
			return AdmitResponse{}, errors.Unwrap(err) // it is for users, who do not know the component
		}
		if err != nil {
			return AdmitResponse{}, err
		}
	}
	return all, nil
}

// Refused calls each [RefusalHandler], the last component first, also after one has panicked, and joins their errors.
func (s *Steps) Refused(pod *v1.Pod) error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, c := range s.refused {
		errs = append(errs, call(c, func() error { c.Refused(pod); return nil }))
	}
	if pod != nil {
		s.seen(pod.UID)
	}
	return errors.Join(errs...)
}

// Prepare calls each [Preparer] until one fails, unless [Steps.Postpone] keeps the pod from starting. The response
// merges theirs: of volumes with one name, that of the last; the shortest RetryAfter; all of ResizeError. It is empty
// after an error, except that it has RetryAfter after that of [Wait].
func (s *Steps) Prepare(ctx context.Context, req PrepareRequest) (PrepareResponse, error) {
	var all PrepareResponse
	if s == nil {
		return all, nil
	}
	if left, err := s.postponed.reason(req.Pod.UID); err != nil {
		return PrepareResponse{RetryAfter: left}, err
	}
	isFirst, err := s.awaitFirst(ctx, req.Pod.UID)
	if err != nil {
		return all, err
	}
	if isFirst {
		defer s.seen(req.Pod.UID)
	}
	track := underway.From(ctx)
	for _, j := range s.prepare {
		track.Set(j.step)
		failed := call(j.component, func() error {
			r, err := j.component.Prepare(ctx, req)
			all.merge(r)
			return err
		})
		if err == nil {
			err = failed
		}
		if err != nil && !isFirst {
			break
		}
	}
	switch _, failure := runtime.WithoutWaits(err); {
	case failure != nil:
		return PrepareResponse{}, err
	case err != nil:
		return PrepareResponse{RetryAfter: all.RetryAfter}, err
	}
	return all, nil
}

func (r *PrepareResponse) merge(later PrepareResponse) {
	switch {
	case len(later.Volumes) == 0:
	case r.Volumes == nil:
		r.Volumes = later.Volumes
	default:
		r.Volumes = maps.Clone(r.Volumes) // it may be that of a component
		maps.Copy(r.Volumes, later.Volumes)
	}
	r.PullSecrets = append(r.PullSecrets, later.PullSecrets...)
	r.RetryAfter = flow.Soonest(r.RetryAfter, later.RetryAfter)
	r.Changed = r.Changed || later.Changed
	switch {
	case r.ResizeError == "":
		r.ResizeError = later.ResizeError
	case later.ResizeError != "":
		r.ResizeError += "; " + later.ResizeError
	}
}

// SandboxEdits returns a function that calls each [SandboxEditor] for the pod and merges their edits, or nil if no
// component is one.
func (s *Steps) SandboxEdits(pod *v1.Pod) func(ctx context.Context) (runtime.SandboxEdits, error) {
	if s == nil || len(s.sandbox) == 0 {
		return nil
	}
	return func(ctx context.Context) (runtime.SandboxEdits, error) {
		var all runtime.SandboxEdits
		for _, c := range s.sandbox {
			in := underway.Begin(ctx, "", nameOf(c, "EditSandbox"), "")
			err := call(c, func() error {
				e, err := c.EditSandbox(in, pod)
				all.Merge(e)
				return err
			})
			in.End()
			if err != nil {
				return runtime.SandboxEdits{}, err
			}
		}
		return all, nil
	}
}

// ContainerEdits returns a function that calls each [ContainerEditor] for a container of the pod and merges their
// edits, or nil if no component is one.
func (s *Steps) ContainerEdits(pod *v1.Pod) func(ctx context.Context, container *v1.Container) (runtime.ContainerEdits,
	error) {
	if s == nil || len(s.container) == 0 {
		return nil
	}
	return func(ctx context.Context, container *v1.Container) (runtime.ContainerEdits, error) {
		var all runtime.ContainerEdits
		for _, c := range s.container {
			in := underway.Begin(ctx, container.Name, nameOf(c, "EditContainer"), "")
			err := call(c, func() error {
				e, err := c.EditContainer(in, pod, container)
				all.Merge(e)
				return err
			})
			in.End()
			if err != nil {
				return runtime.ContainerEdits{}, err
			}
		}
		return all, nil
	}
}

// EditStatus calls each [StatusEditor], also after one has panicked, and joins their errors.
func (s *Steps) EditStatus(pod *v1.Pod, status *v1.PodStatus) error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, c := range s.status {
		errs = append(errs, call(c, func() error { c.EditStatus(pod, status); return nil }))
	}
	return errors.Join(errs...)
}

// HandleRunning reports whether a component is a [RunningHandler].
func (s *Steps) HandleRunning() bool { return s != nil && len(s.running) > 0 }

// Running calls each [RunningHandler], also after one has failed, and joins their errors.
func (s *Steps) Running(ctx context.Context, pod *v1.Pod, observed *runtime.PodStatus) error {
	if s == nil {
		return nil
	}
	var errs []error
	track := underway.From(ctx)
	for _, j := range s.running {
		track.Set(j.step)
		errs = append(errs, call(j.component, func() error { return j.component.Running(ctx, pod, observed) }))
	}
	return errors.Join(errs...)
}

// Stopped calls each [StoppedHandler], the last component first, until one fails.
func (s *Steps) Stopped(ctx context.Context, req EndedRequest) error {
	if s == nil {
		return nil
	}
	err := untilOneFails(ctx, s.stopped, func(c StoppedHandler) error { return c.Stopped(ctx, req) })
	if err == nil && req.Pod != nil {
		s.seen(req.Pod.UID)
	}
	return err
}

// Ended calls each [EndedHandler], the last component first, until one fails: what a component has made may depend on
// those before it.
func (s *Steps) Ended(ctx context.Context, req EndedRequest) error {
	if s == nil {
		return nil
	}
	err := untilOneFails(ctx, s.ended, func(c EndedHandler) error { return c.Ended(ctx, req) })
	if err == nil && req.Pod != nil {
		s.seen(req.Pod.UID)
	}
	return err
}

// Gone calls each [GoneHandler], the last component first, until one fails.
func (s *Steps) Gone(ctx context.Context, req GoneRequest) error {
	if s == nil {
		return nil
	}
	s.seen(req.Pod.UID)
	for _, c := range s.gone {
		if err := call(c, func() error { return c.Gone(ctx, req) }); err != nil {
			return err
		}
	}
	return nil
}

// untilOneFails calls the step of each component in order until one fails.
func untilOneFails[C Component](ctx context.Context, components []joined[C], step func(c C) error) error {
	track := underway.From(ctx)
	for _, j := range components {
		track.Set(j.step)
		if err := call(j.component, func() error { return step(j.component) }); err != nil {
			return err
		}
	}
	return nil
}

// Chain returns an [Admitter] that calls the given ones in order until one refuses the pod. It is for wrappers; the
// agent calls those in Options.Join in the same way.
func Chain(admitters ...Admitter) Admitter { return &Steps{admit: admitters} }

// AdmitterFunc returns an [Admitter] that evicts no pods and calls a function.
func AdmitterFunc(name string, admit func(req AdmitRequest) error) Admitter {
	return &admitterFunc{name, admit}
}

type admitterFunc struct {
	name  string
	admit func(req AdmitRequest) error
}

func (a *admitterFunc) Name() string { return a.name }

func (a *admitterFunc) Admit(req AdmitRequest) (AdmitResponse, error) {
	return AdmitResponse{}, a.admit(req)
}
