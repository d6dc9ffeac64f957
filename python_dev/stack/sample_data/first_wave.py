"""The first wave: every topic over all weeks, the rules' edges and broken records included."""

from python_dev.stack.sample_data import edges
from python_dev.stack.sample_data.faults import damage
from python_dev.stack.sample_data.log import Log, number
from python_dev.stack.sample_data.plan import DAY, Plan
from python_dev.stack.sample_data.sources import brokerage, payments, shop, storefront
from python_dev.stack.sample_data.sources.shop_orders import closing_order, item_changes, order_changes, place


def first_wave(plan: Plan) -> Log:
    """Return the log of the first wave, from offset 0 in every partition."""
    span = plan.first_wave
    last_order, drafts = closing_order(plan)
    placed = place(1, plan.orders, plan, span, plan.rng("orders"))
    drafts += order_changes(placed, span, plan.rng("order changes"))
    drafts += item_changes([*placed, last_order], 1, plan, span, plan.rng("items"))
    products = shop.products(plan, plan.rng("products"))
    drafts += products + shop.customers_and_addresses(plan, plan.rng("customers"))
    drafts += edges.disordered_products(plan, shop.product(999_999, plan.rng("disordered")))
    drafts += edges.edge_cases(plan, plan.rng("fates"))
    drafts += edges.sale_edges(plan, plan.rng("sale edges"))

    since_ms = (plan.start_ms + plan.end_ms) // 2
    drafts += payments.for_orders(placed, (1, 2, 2), since_ms, span, plan.rng("payments"))
    drafts += edges.payment_edges(plan, plan.rng("payment edges"))
    drafts += edges.payment_conflicts(plan, plan.rng("payment conflicts"))

    people = storefront.regulars(5 + plan.orders // 4, plan.rng("store customers"))
    drafts += storefront.orders(1, plan.orders, people, span, plan.rng("store orders"))
    drafts += edges.store_order_edges(plan, people, plan.rng("store order edges"))

    rng = plan.rng("trades")
    traders = brokerage.traders(5 + plan.orders // 20, rng)
    drafts += brokerage.trades(plan.orders, traders, plan.end_ms, span, rng)
    drafts += edges.long_ago(plan.rng("absurd"), people, traders)
    return number(drafts + damage(drafts, plan.end_ms - DAY), {})
