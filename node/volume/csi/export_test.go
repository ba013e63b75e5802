package csi

// Before has a function called before each step, whose error is that of the step.
func (p *Plugin) Before(step func(string) error) { p.before = step }
