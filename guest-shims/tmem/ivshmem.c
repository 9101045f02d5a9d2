// SPDX-License-Identifier: GPL-2.0-only
/* Transport over QEMU's ivshmem-doorbell device: BAR 2 is the window, BAR 0 the doorbell. */
#define pr_fmt(fmt) "tmem: " fmt

#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/pci.h>

#include "guest.h"
#include "transport.h"

#define IVSHMEM_DEVICE 0x1110
#define IVSHMEM_DOORBELL 12 /* write: peer << 16 | vector */
#define HOST_PEER 1
#define HOST_VECTOR 0

static struct {
	struct pci_dev *pci;
	void __iomem *registers;
	void *window;
	u64 bytes;
} device;

static irqreturn_t on_interrupt(int irq, void *unused)
{
	tmem_host_notified();
	return IRQ_HANDLED;
}

/* A device of someone else has another magic; it is left alone. */
static bool is_tmem_window(const void *window)
{
	return READ_ONCE(((const struct tmem_geometry *)window)->magic) == TMEM_MAGIC;
}

static int map_device(struct pci_dev *pci)
{
	device.bytes = pci_resource_len(pci, 2);
	device.registers = pcim_iomap(pci, 0, 0);
	if (!device.registers || device.bytes < PAGE_SIZE)
		return -ENODEV;
	device.window = devm_memremap(&pci->dev, pci_resource_start(pci, 2), device.bytes,
				      MEMREMAP_WB);
	if (IS_ERR_OR_NULL(device.window))
		return -ENOMEM;
	return is_tmem_window(device.window) ? 0 : -ENODEV;
}

static int enable_interrupt(struct pci_dev *pci)
{
	int error = pci_alloc_irq_vectors(pci, 1, 1, PCI_IRQ_MSIX);

	if (error < 0)
		return error;
	return devm_request_irq(&pci->dev, pci_irq_vector(pci, 0), on_interrupt, 0, "tmem", NULL);
}

static int probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	int error;

	if (device.pci)
		return -ENODEV; /* one host is enough */
	error = pcim_enable_device(pci);
	if (error)
		return error;
	error = map_device(pci);
	if (error)
		return error;
	pci_set_master(pci);
	error = enable_interrupt(pci);
	if (error)
		return error;
	device.pci = pci;
	return 0;
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, IVSHMEM_DEVICE) },
	{}
};

/* Never unbound: pages of the kernel may be in the window at any time. */
static struct pci_driver driver = {
	.name = "tmem-ivshmem",
	.id_table = ids,
	.probe = probe,
	.driver.suppress_bind_attrs = true,
};

static int find(void **window, u64 *bytes)
{
	int error = pci_register_driver(&driver);

	if (error)
		return error;
	if (!device.pci) {
		pci_unregister_driver(&driver);
		return -ENODEV;
	}
	*window = device.window;
	*bytes = device.bytes;
	return 0;
}

static void ring(void)
{
	writel(HOST_PEER << 16 | HOST_VECTOR, device.registers + IVSHMEM_DOORBELL);
}

const struct tmem_transport tmem_ivshmem = {
	.name = "ivshmem",
	.find = find,
	.ring = ring,
};
