package podconfig

import "context"

// SourceFunc returns a [Source] of that name whose method Run is the function.
func SourceFunc(name string, run func(ctx context.Context, sink Sink) error) Source {
	return sourceFunc{name, run}
}

type sourceFunc struct {
	name string
	run  func(ctx context.Context, sink Sink) error
}

// Name implements [Source].
func (s sourceFunc) Name() string { return s.name }

// Run implements [Source].
func (s sourceFunc) Run(ctx context.Context, sink Sink) error { return s.run(ctx, sink) }
