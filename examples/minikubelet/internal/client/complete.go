package client

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// completeWithin is how long the agent may take to answer: a shell waits.
const completeWithin = 2 * time.Second

// complete has the shell complete the arguments and flags of the command from the pods of the
// running agent.
func (c *call) complete() {
	flag := func(name string, values func(toComplete string) []string) {
		if c.cmd.Flags().Lookup(name) != nil {
			// The error is that the flag is missing, or that it was registered before.
			_ = c.cmd.RegisterFlagCompletionFunc(name, func(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
				c.args = args
				return values(toComplete), cobra.ShellCompDirectiveNoFileComp
			})
		}
	}
	flag("output", func(string) []string { return outputs() })
	flag("namespace", func(string) []string { return c.namespaces() })
	flag("container", func(string) []string { return c.containersOf() })
	_ = c.cmd.MarkFlagDirname("root-dir") // unless there is none
	if c.cmd.ValidArgsFunction != nil || c.cmd.ValidArgs != nil {
		return
	}
	c.cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		c.args = args
		switch pod := strings.Contains(cmd.Use, " POD"); {
		case cmd.Name() == "cp" && len(args) < 2:
			var places []string
			for _, name := range c.podNames(toComplete) {
				places = append(places, name+":")
			}
			return places, cobra.ShellCompDirectiveNoSpace
		case cmd.Name() == "exec" && len(args) > 0:
			return nil, cobra.ShellCompDirectiveDefault
		case pod && len(args) == 0:
			return c.podNames(toComplete), cobra.ShellCompDirectiveNoFileComp
		case cmd.Name() == "logs" && len(args) == 1:
			return c.containersOf(), cobra.ShellCompDirectiveNoFileComp
		case cmd.Name() == "port-forward":
			return c.portsOf(), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// running returns the pods of the agent, none if it does not answer.
func (c *call) running() []*v1.Pod {
	if c.connect() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.cmd.Context(), completeWithin)
	defer cancel()
	pods, _ := c.client.pods(ctx)
	return pods
}

// podNames returns the names of the pods in the namespace; with NAMESPACE/ those of all.
func (c *call) podNames(toComplete string) (names []string) {
	for _, pod := range c.running() {
		switch {
		case c.namespace == "" && strings.Contains(toComplete, "/"):
			names = append(names, pod.Namespace+"/"+pod.Name)
		case pod.Namespace == c.podNamespace():
			names = append(names, pod.Name)
		}
	}
	return names
}

// namespaces returns the namespaces of the pods.
func (c *call) namespaces() []string {
	all := map[string]bool{}
	for _, pod := range c.running() {
		all[pod.Namespace] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// chosen returns the pod that the first argument names, nil if there is none.
func (c *call) chosen() *v1.Pod {
	if len(c.args) == 0 {
		return nil
	}
	pods := c.running()
	pod, err := choosePod(pods, c.podNamespace(), c.args[0])
	if err != nil {
		return nil
	}
	return pod
}

// containersOf returns the containers of the pod that the first argument names.
func (c *call) containersOf() (names []string) {
	pod := c.chosen()
	if pod == nil {
		return nil
	}
	for _, container := range podspec.Containers(&pod.Spec) {
		names = append(names, container.Name)
	}
	return names
}

// portsOf returns the ports of the pod that the first argument names.
func (c *call) portsOf() (ports []string) {
	pod := c.chosen()
	if pod == nil {
		return nil
	}
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			ports = append(ports, strconv.Itoa(int(port.ContainerPort)))
			if port.Name != "" {
				ports = append(ports, port.Name)
			}
		}
	}
	return ports
}
