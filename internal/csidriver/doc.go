// Package csidriver is a small CSI driver for tests. Its volumes are directories, or files that are attached to loop
// devices.
//
// # Vocabulary
//
//   - A driver serves the services Identity, Controller and Node at one socket, and the service of the registration at
//     another if [Options.Registry] is set.
//   - The CO is the client of a driver, here a node agent.
//   - A fault changes the answer to a call, see [Fault].
//   - A violation is a call that a CO must not make, such as a publication of a volume that is not staged.
//
// # Walk through
//
//	driver, _ := csidriver.Start(t, csidriver.Options{NodeID: "node"})
//	driver.AddVolume("data", 1<<20)
//	…                                        // the code under test calls the driver at driver.Socket()
//	driver.Inject(csidriver.Fault{Method: "NodeStageVolume", Code: codes.Internal, Times: 1})
//	…
//	assert.Equal(t, 2, csidriver.Count(driver.Calls(), "NodeStageVolume"))
//	assert.Empty(t, driver.Violations())
//
// # Guarantees
//
// All calls are idempotent, with the error codes of the CSI specification. The state of the volumes is on disk before a
// call is answered: a driver that is killed and started again in the same directory has the same volumes, and the
// violations of before.
//
// As root on Linux, volumes are mounted. Otherwise, and with [Options.Links], symbolic links are in the place of
// mounts, and files in the place of block devices. A link is not read-only.
//
// Only tests may import it.
package csidriver
