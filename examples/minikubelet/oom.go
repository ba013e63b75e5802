package main

import (
	"errors"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/resources/oom"
	"github.com/kubeletkit/kubeletkit/resources/swap"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// addMemory adds what pods may use of the node's swap, and what is reported if the kernel kills their processes for lack of memory.
func addMemory(s *config.Settings, rt *cri.Runtime, opts *kubeletkit.Options, log logr.Logger) error {
	var parts kubeletkit.Parts // set by kubeletkit.New, before anything is reported
	watcher, err := oom.New(oom.Options{
		Event:  func(e runtime.Event) { parts.Event.Emit(e) },
		Record: func(r runtime.Record) { parts.Record.Emit(r) },
		Logger: log.WithName("oom"),
	})
	limiter, serr := swap.New(swap.Options{Behavior: swap.Behavior(s.MemorySwap.SwapBehavior), Logger: log.WithName("swap")})
	if err := errors.Join(err, serr); err != nil {
		return err
	}
	opts.Join = append(opts.Join, limiter, watcher)
	opts.Override.Cache = func(_ runtime.StatusCache, p kubeletkit.Parts) (runtime.StatusCache, error) {
		parts = p
		return runtime.NewCache(watcher.Inspector(rt), runtime.CacheOptions{InspectTimeout: s.RuntimeRequestTimeout.Duration}), nil
	}
	return nil
}
