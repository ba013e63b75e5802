package csi

import (
	"context"
	"net"
)

// Before has a function called before each step, whose error is that of the step.
func (p *Plugin) Before(step func(string) error) { p.before = step }

// Dial has connections made by a function.
func (p *Plugin) Dial(dial func(context.Context, string) (net.Conn, error)) { p.dial = dial }
