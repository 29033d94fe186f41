"""What a server may call: no address that is private to its own network, unless the settings allow it. Pure.

It is asked of the address that is connected to, not of the name alone, so that a name that is pointed elsewhere meanwhile does
no harm.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from stigmergy.errors import Invalid, StigmergyError
from stigmergy.settings import Settings

Address = IPv4Address | IPv6Address


class AddressRefused(StigmergyError):
    """An address that this server does not call."""

    code = "address_refused"
    status = 422


class Reach:
    """What a server may call: the public internet, and the networks that it allows beside."""

    def __init__(self, networks: Iterable[str] = (), *, loopback: bool = False) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        for text in networks:
            try:
                self._networks.append(ip_network(text))
            except ValueError as error:
                raise Invalid(f"{text!r} is no network ({error}); write for example 10.1.0.0/16", "webhook_networks") from None
        self._loopback = loopback

    def allows(self, address: str) -> bool:
        try:
            found = plain(ip_address(address.partition("%")[0]))
        except ValueError:
            return False
        if any(found.version == network.version and found in network for network in self._networks):
            return True
        if found.is_loopback:
            return self._loopback
        return found.is_global and not found.is_multicast and not found.is_reserved

    def check_literal(self, host: str) -> None:
        """Refuse a host that is written as an address and is not allowed. Of a name nothing can be said yet."""
        if (is_literal(host) and not self.allows(host)) or (host == "localhost" and not self._loopback):
            raise refused(host)


def reach_of(settings: Settings) -> Reach:
    """What a server with these settings may call. One that is bound to loopback is somebody's own machine, and may call it."""
    return Reach(settings.webhook_networks, loopback=is_loopback(settings.host))


def is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_literal(host) and ip_address(host).is_loopback)


def refused(host: str) -> AddressRefused:
    return AddressRefused(
        f"{host} is not a public address; name its network in the setting `webhook_networks` if this server may call it"
    )


def plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 one only wraps."""
    if isinstance(address, IPv6Address):
        teredo = address.teredo
        wrapped = address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo is not None else None)
        if wrapped is None and address in _NAT64:
            wrapped = IPv4Address(int(address) & 0xFFFFFFFF)
        return wrapped or address
    return address


_NAT64 = IPv6Network("64:ff9b::/96")
