package kubeletkit

import "github.com/kubeletkit/kubeletkit/lifecycle"

// WithAgent returns a component for [Options].Join that [New] builds with the function, in its place of the list. It is for components that
// need the parts of the agent, such as [Parts].Event and [Parts].Record, or the agent itself, such as [Agent.EndPods].
//
// When New calls the function, [Agent.Parts] has those parts that are listed above Inspector; the others are there when the agent
// runs. The function may call [Agent.Parts], [Agent.Add], [Agent.AddHealthCheck] and [Agent.AddReadyCheck], and may keep the agent. It starts
// nothing. Its error, or a component that is nil, fails New.
func WithAgent(build func(agent *Agent) (lifecycle.Component, error)) lifecycle.Component {
	return withAgent{build}
}

// withAgent is replaced by New. It joins no step, so that what does not know it refuses it.
type withAgent struct {
	build func(agent *Agent) (lifecycle.Component, error)
}

// Name implements [lifecycle.Component].
func (withAgent) Name() string {
	return "a component of kubeletkit.WithAgent, which only kubeletkit.New builds"
}
