// Package containerfiles reads the Containerfile text that a MachineOSConfig
// carries: what it asks for, and whether it can be built at all. Everything
// here is a pure function of the text, so that a mistake is found, with its
// line, before any pod starts.
//
// A text is built in three named contexts, which look like stages to it:
//
//	base        the OS image, with the extensions and the kernel asked for
//	configs     base plus the layer made from the rendered MachineConfig
//	extensions  the stream's extensions image, a package repository
//
// Its last stage becomes the OS image of the nodes, so it has to descend from
// configs or base.
package containerfiles
