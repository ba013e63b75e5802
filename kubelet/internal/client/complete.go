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

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// completeWithin is how long the agent may take to answer what is not waited for longer: a shell waits.
const completeWithin = 2 * time.Second

// complete has the shell complete the arguments and flags of the command from the pods of the
// running agent.
func (c *call) complete() {
	complete := func(values func(toComplete string) ([]string, cobra.ShellCompDirective)) cobra.CompletionFunc {
		return func(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			c.take(args)
			all, directive := values(toComplete)
			return slices.DeleteFunc(all, func(v string) bool { return !strings.HasPrefix(v, toComplete) }), directive
		}
	}
	flag := func(name string, values func() []string) {
		if c.cmd.Flags().Lookup(name) != nil {
			_ = c.cmd.RegisterFlagCompletionFunc(name, complete(func(string) ([]string, cobra.ShellCompDirective) {
				return values(), cobra.ShellCompDirectiveNoFileComp
			})) // the flag is there, and has none
		}
	}
	flag("output", outputs)
	flag("namespace", c.namespaces)
	flag("types", func() []string { return []string{v1.EventTypeNormal, v1.EventTypeWarning} })
	flag("sort-by", func() []string {
		switch c.cmd.Name() {
		case "images":
			return slices.Sorted(maps.Keys(imageOrders()))
		case "top":
			return slices.Sorted(maps.Keys(usageOrders()))
		default:
			return slices.Sorted(maps.Keys(podOrders()))
		}
	})
	flag("container", c.containersOf)
	_ = c.cmd.MarkFlagDirname("root-dir") // unless there is none
	if c.cmd.ValidArgs == nil {
		c.cmd.ValidArgsFunction = complete(c.arguments)
	}
}

// arguments returns the values of the next argument.
func (c *call) arguments(toComplete string) ([]string, cobra.ShellCompDirective) {
	switch name := c.cmd.Name(); {
	case name == "cp" && len(c.args) < 2:
		places := c.podNames(toComplete)
		for i := range places {
			places[i] += ":"
		}
		return places, cobra.ShellCompDirectiveNoSpace // and files
	case name == "exec" && len(c.args) > 0:
		return nil, cobra.ShellCompDirectiveDefault // files
	case strings.Contains(c.cmd.Use, " POD") && len(c.args) == 0, name == "pods", name == "events" && len(c.args) == 0:
		return c.podNames(toComplete), cobra.ShellCompDirectiveNoFileComp
	case name == "logs" && len(c.args) == 1:
		return c.containersOf(), cobra.ShellCompDirectiveNoFileComp
	case name == "port-forward":
		return c.portsOf(), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
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
