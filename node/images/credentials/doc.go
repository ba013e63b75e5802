// Package credentials finds the credentials with which an image may be pulled.
//
// # Vocabulary
//
//   - A credential is a username and a password for a registry. It belongs to a pull secret, to a service account, or
//     to the node, and its pods with it: see [Credential].
//   - A [Source] finds credentials for an image and a pod, best first.
//   - A location is what a configuration has a credential for: "[*.]host[:port][/path]". It matches an image if the
//     labels of the hosts match one by one, the ports are equal, and the path begins the path of the image. The longest
//     location comes first.
//   - A plugin is an executable that returns credentials for an image (credential provider, exec protocol
//     credentialprovider.kubelet.k8s.io/v1). A provider is its entry in the configuration.
//
// # Walk through
//
// There are three sources, and kubelet's order of them:
//
//	config, err := credentials.ReadConfig("/etc/kubernetes/credential-providers.yaml") // a file or a directory
//	…
//	plugins, err := credentials.NewPlugins(credentials.Options{Config: config, BinDir: "/usr/libexec/credential-providers"})
//	…
//	source := credentials.Join(
//		credentials.Secrets{},                               // of the pod, and of its service account
//		credentials.NodeConfig("/var/lib/agent/config.json"), // docker's format
//		plugins,
//	)
//	list, err := source.Credentials(ctx, credentials.Request{Image: "registry.example.com/team/app", Pod: pod, Secrets: secrets})
//	for _, c := range credentials.Distinct(list) {
//		// Pull with c, until a pull succeeds. Without any, pull anonymously.
//	}
//
// A source of one's own is a function, [SourceFunc]. The error says what could not be read: [Split] divides it into the
// part for the pod and the part for the log. The credentials that were found are valid all the same.
//
// # Plugins
//
// A plugin is executed if an image matches its matchImages and no answer for it is cached. The cache is kubelet's: the
// plugin decides by cacheKeyType whether its answer is for the image, the registry or all images, and by cacheDuration
// for how long. With tokenAttributes, the plugin receives a token of the pod's service account and chosen annotations
// (KEP-4412), and its answers are cached for the service account, its UID and these annotations, and with the cacheType
// Token for the token.
//
// # Guarantees
//
//   - A password, and a token of a service account, is in no error, log and text of a [Credential].
//   - A secret, a file or a plugin that is broken leaves the others.
//   - A credential for which a plugin received the identity of a service account is returned for pods of this account
//     only.
//   - Concurrent requests for the same image execute a plugin once. There are 10 executions of a plugin at a time.
//   - A plugin that has not ended after a minute, or writes more than 1 MiB, is killed with the processes of its group.
//     Its error output is logged up to 1 KiB.
//   - Memory is bounded: 10,000 credentials are read, 100 logins are returned by a source, 1000 answers or 8 MiB are
//     cached for each plugin.
//   - There is no goroutine between two calls.
package credentials
